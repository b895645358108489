// The head of the report: the verdict with its reason, or the result of a run that was not judged; the command, the
// hosts, the time, and whether the run is complete. Outcome and result are in run.json; the page decides neither.

import type { ComponentChildren } from "preact";

import { duration, moment } from "../data/format";
import { headline } from "../data/headline";
import { fold } from "../data/hosts";
import type { Run } from "../data/load";
import type { Verdict } from "../data/records";

type Outcome = "PASS" | "FAIL" | "INCONCLUSIVE";

const SIGNS: Record<Outcome, string> = { PASS: "✓", FAIL: "✕", INCONCLUSIVE: "?" };

export function OutcomeMark({ outcome }: { outcome: Outcome }) {
  return (
    <span class={`outcome ${outcome.toLowerCase()}`}>
      <span aria-hidden="true">{SIGNS[outcome]} </span>
      {outcome}
    </span>
  );
}

export function Banner({ run }: { run: Run }) {
  const { info } = run;
  const outcome = info.outcome;
  const hosts = [...new Set(info.hosts)];
  const ranks = info.hosts?.length ?? 0;
  return (
    <header>
      <p class="brand">
        <strong>Assay</strong> report
        <span class="soft"> · {info.id}</span>
      </p>
      {outcome ? (
        <div class={`banner ${outcome.toLowerCase()}`}>
          <h1>
            <span aria-hidden="true">{SIGNS[outcome]}</span> {outcome}
          </h1>
          <div>
            <p>{reason(run)}</p>
            {info.result && <p class="result">{capitalised(info.result)}</p>}
          </div>
        </div>
      ) : (
        <div class="banner unjudged">
          <h1>{titleWithoutVerdict(run)}</h1>
          {!profileTitle(run) && <p class="result">{resultParts(run)[1]}</p>}
        </div>
      )}
      {info.state !== "complete" && (
        <p class="notice" role="note">
          <strong>{INCOMPLETE[info.state ?? "running"]}</strong>{" "}
          {isToldByFailure(run) ? "" : info.reason ? `${info.reason}. ` : ""}
          What was measured until then is below.
        </p>
      )}
      {info.busy && (
        <p class="notice" role="note">
          <strong>Doubtful:</strong> {info.busy}. Measure again when nothing else runs there.
        </p>
      )}
      <dl class="tiles">
        {hosts.length > 0 && (
          <Tile name="Hosts" value={String(hosts.length)}>
            <Names names={hosts} />
            {hosts.length < ranks && `, ${ranks} ranks`}
          </Tile>
        )}
        {headline(run.measurements, run.info.options).map((tile) => (
          <Tile key={tile.name} name={tile.name} value={tile.value}>
            {tile.note}
          </Tile>
        ))}
        <Tile
          name="Took"
          value={info.ended ? duration(info.started, info.ended) : "no end recorded"}
        >
          {moment(info.started)}
        </Tile>
      </dl>
      <p class="command">
        <code>{info.command.join(" ")}</code>
        <span class="soft"> with Assay {info.assay}</span>
      </p>
    </header>
  );
}

const INCOMPLETE = {
  running: "This run had not ended when the report was written.",
  partial: "This run is partial.",
  failed: "This run failed.",
  complete: "",
};

function Tile({
  name,
  value,
  children,
}: {
  name: string;
  value: string;
  children: ComponentChildren;
}) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value}
        <small>{children}</small>
      </dd>
    </div>
  );
}

/** The names of hosts, folded; of many that do not fold only the first ones, and all in the tooltip. */
function Names({ names }: { names: string[] }) {
  const folded = fold(names);
  return folded.length <= MAX_FOLDED ? (
    <>{folded}</>
  ) : (
    <span title={folded}>{`${folded.slice(0, folded.lastIndexOf(",", MAX_FOLDED))}, …`}</span>
  );
}

const MAX_FOLDED = 60; // characters

/** What the page is about, for its title: the verdict, or the result. */
export function subjectOf(run: Run): string {
  return run.info.outcome ?? titleWithoutVerdict(run);
}

function titleWithoutVerdict(run: Run): string {
  return profileTitle(run) || resultParts(run)[0] || "Nothing was measured";
}

/** The result's first figure, and the rest: "81 conflicts of shift among 45 ranks", "0.04 a pair of ranks; ...". */
function resultParts({ info }: Run): [string, string] {
  const text = capitalised(info.result ?? "");
  const end = text.search(/[,;(]/);
  return end < 0 ? [text, ""] : [text.slice(0, end).trim(), text.slice(end).replace(/^[,;] /, "")];
}

function capitalised(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Whether the reason of an incomplete run stands among its failures, which are shown next. */
function isToldByFailure({ info, failures }: Run): boolean {
  return failures.some((failure) => failure.problem === info.reason);
}

function profileTitle(run: Run): string {
  if (run.heaps.length > 0) return "Heap profile";
  if (run.placements.length > 0) return "NUMA profile";
  return run.measurements.some((record) => record.name.startsWith("profile.alloc."))
    ? "Allocators"
    : "";
}

/** The reason of the outcome: the criteria that failed, else those that could not be decided. */
function reason(run: Run): string {
  const total = run.verdicts.length;
  const failed = run.verdicts.filter((verdict) => verdict.outcome === "FAIL");
  const open = run.verdicts.filter((verdict) => verdict.outcome === "INCONCLUSIVE");
  const counted = (some: Verdict[]) =>
    total === 1 ? "The one criterion" : `${some.length} of ${total} criteria`;
  if (failed.length > 0) return `${counted(failed)} failed: ${criterionTitles(failed)}.`;
  if (open.length > 0) return `${counted(open)} could not be decided: ${criterionTitles(open)}.`;
  const faults = run.findings.filter((finding) => (finding.severity ?? "fault") === "fault");
  const parts: string[] = [];
  if (total === 1) parts.push("The one criterion is met");
  else if (total > 0) parts.push(`${total === 2 ? "Both" : `All ${total}`} criteria are met`);
  if (faults[0])
    parts.push(faults[0].cause + (faults.length > 1 ? ` (and ${faults.length - 1} more)` : ""));
  else if (run.corruptions.length > 0) parts.push("payloads were corrupted");
  return parts.length > 0 ? `${parts.join(": ")}.` : (run.info.reason ?? "");
}

const MAX_NAMES_SHOWN = 4;

/** The titles of criteria; of a criterion on findings its reason. */
function criterionTitles(verdicts: Verdict[]): string {
  const titles = verdicts
    .slice(0, MAX_NAMES_SHOWN)
    .map((verdict) => (verdict.metric ? verdict.criterion : verdict.reason || verdict.criterion));
  const more = verdicts.length - titles.length;
  return titles.join("; ") + (more > 0 ? `; and ${more} more` : "");
}
