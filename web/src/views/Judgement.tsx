// The sections of verdicts (a table) and findings (text with figures and evidence).

import { formatParameters, percent, quantity } from "../data/format";
import type { PairsHead, Run } from "../data/load";
import type { Finding, Measurement, Subject, Verdict } from "../data/records";
import { OutcomeMark } from "./Banner";
import { figureColumn, Table, type Column } from "./Table";

const RANK = { FAIL: 0, INCONCLUSIVE: 1, PASS: 2 };

const VERDICT_COLUMNS: Column<Verdict>[] = [
  {
    id: "outcome",
    header: "Verdict",
    value: (verdict) => RANK[verdict.outcome],
    show: (verdict) => <OutcomeMark outcome={verdict.outcome} />,
  },
  {
    id: "criterion",
    header: "Criterion",
    value: (verdict) => verdict.criterion,
    show: (verdict) => (
      <>
        {verdict.criterion}
        {verdict.reason && <small>{verdict.reason}</small>}
        {verdict.fix && (
          <small>
            Fix: <code>{verdict.fix}</code>
          </small>
        )}
      </>
    ),
  },
  {
    id: "subject",
    header: "Worst at",
    value: (verdict) => subjectText(verdict.subject) || undefined,
  },
  {
    id: "observed",
    header: "Observed",
    numeric: true,
    value: (verdict) => verdict.observed ?? verdict.observed_text,
    show: (verdict) => verdict.observed_text || quantity(verdict.observed, verdict.unit ?? ""),
  },
  {
    id: "required",
    header: "Required",
    numeric: true,
    value: (verdict) => verdict.required ?? verdict.required_text,
    show: (verdict) => verdict.required_text || quantity(verdict.required, verdict.unit ?? ""),
  },
  figureColumn("margin", "Margin", (verdict) => verdict.margin, percent),
];

export function Verdicts({ run }: { run: Run }) {
  const specifications = [
    ...new Set(run.verdicts.map((verdict) => verdict.specification).filter(Boolean)),
  ];
  const rows = run.verdicts.toSorted((a, b) => RANK[a.outcome] - RANK[b.outcome]);
  return (
    <section id="verdicts">
      <h2>Verdicts</h2>
      <p class="soft">
        {specifications.length > 0 && `Specification: ${specifications.join(", ")}. `}
        The margin is how much better (+) or worse (−) than required the observed value is.
      </p>
      <Table caption="Criteria and verdicts" columns={VERDICT_COLUMNS} rows={rows} />
    </section>
  );
}

const SIDES: Record<NonNullable<Finding["side"]>, string> = {
  transmit: "transmit side",
  receive: "receive side",
  both: "both sides",
  pair: "one pair",
  block: "a block of pairs",
  node: "the node",
  none: "",
};

const SEVERITIES: Record<NonNullable<Finding["severity"]>, string> = {
  fault: "✕ Fault",
  warning: "! Warning",
  advice: "→ Advice",
};

/** Why there is no finding. */
function withoutFinding(run: Run): string {
  const measured = run.measurements.some((record) => (record.status ?? "ok") === "ok");
  if (!measured && run.matrices.length === 0)
    return "Nothing was measured, so no cause was looked for.";
  if (run.failures.length > 0 || run.info.state !== "complete")
    return "No cause was found in what was measured before the run ended early.";
  if (run.verdicts.some((verdict) => verdict.outcome === "FAIL"))
    return "No rule explains the criteria that failed: see the verdicts.";
  return "No cause of trouble was found.";
}

export function Findings({ run }: { run: Run }) {
  return (
    <section id="findings">
      <h2>Findings</h2>
      {run.findings.length === 0 && <p class="soft">{withoutFinding(run)}</p>}
      {run.findings.map((finding, index) => (
        <FindingCard key={finding.id ?? index} run={run} finding={finding} />
      ))}
    </section>
  );
}

function FindingCard({ run, finding }: { run: Run; finding: Finding }) {
  const cited = (finding.evidence ?? []).map((id) => ({ id, record: run.byId.get(id) }));
  const facts: [string, string][] = [
    ["Who", subjectText(finding.subject)],
    ["Where", SIDES[finding.side ?? "none"]],
    [
      "Effect",
      typeof finding.effect === "number"
        ? `${percent(finding.effect)} against what was expected`
        : "",
    ],
    [
      "Confidence",
      typeof finding.confidence === "number" ? percent(finding.confidence, false) : "",
    ],
    ["Rule", finding.rule],
  ];
  return (
    <article class={`finding ${finding.severity ?? "fault"}`}>
      <h3>
        <span class="severity">{SEVERITIES[finding.severity ?? "fault"]}</span> {finding.cause}
      </h3>
      <dl class="facts">
        {facts.map(([name, value]) => value && <Fact key={name} name={name} value={value} />)}
      </dl>
      {(finding.details ?? []).length > 0 && (
        <ul>
          {finding.details!.map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      )}
      {finding.fix && (
        <p class="fix">
          <strong>Fix:</strong> {finding.fix}
        </p>
      )}
      {cited.length > 0 && (
        <details>
          <summary>Evidence: {cited.length === 1 ? "1 record" : `${cited.length} records`}</summary>
          <ul class="evidence">
            {cited.slice(0, 100).map(({ id, record }) => (
              <li key={id}>
                <code>{id}</code> {record ? citation(record) : "not in this run"}
              </li>
            ))}
          </ul>
        </details>
      )}
    </article>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** A subject as text: "h3", "h3 → h5", "h3 (mlx5_0, NUMA node 1)". */
export function subjectText(subject: Subject | undefined): string {
  if (!subject?.host) return "";
  const extra = [
    subject.device,
    typeof subject.numa === "number" ? `NUMA node ${subject.numa}` : "",
    typeof subject.rank === "number" ? `rank ${subject.rank}` : "",
  ].filter(Boolean);
  const pair = subject.peer ? `${subject.host} → ${subject.peer}` : subject.host;
  return extra.length > 0 ? `${pair} (${extra.join(", ")})` : pair;
}

function citation(record: Measurement | PairsHead): string {
  const head = `${record.name} ${record.metric}, ${formatParameters(record.params ?? {})}`;
  const pair = subjectText(record.subject);
  if (record.kind === "pairs")
    return `${head}: from ${pair}${record.count > 0 ? ` to ${record.count} peers` : ""}`;
  return `${pair ? `${pair}: ` : ""}${head}: ${quantity(record.summary?.median, record.unit)}`;
}
