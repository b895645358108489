// The head of the report: the verdict with its reason, the command, the hosts, the time, and whether the run is
// complete.

import type { ComponentChildren } from "preact";

import { duration, moment, quantity } from "../data/format";
import { fold } from "../data/hosts";
import type { Run } from "../data/load";
import type { Verdict } from "../data/records";
import { medianOf } from "../data/sweep";

export type Outcome = "PASS" | "FAIL" | "INCONCLUSIVE";

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
  const outcome = overall(run);
  const title = titleWithoutVerdict(run);
  const hosts = [...new Set(info.hosts)];
  const ranks = info.hosts?.length ?? 0;
  return (
    <header>
      <p class="brand">
        <strong>Assay</strong> report
        <span class="soft"> · {info.id}</span>
      </p>
      {title ? (
        <div class="banner">
          <h1>{title}</h1>
        </div>
      ) : (
        <div class={`banner ${outcome.toLowerCase()}`}>
          <h1>
            <span aria-hidden="true">{SIGNS[outcome]}</span> {outcome}
          </h1>
          <p>{reason(run, outcome)}</p>
        </div>
      )}
      {info.state !== "complete" && (
        <p class="notice" role="note">
          <strong>{INCOMPLETE[info.state ?? "running"]}</strong> {info.reason}
          {info.reason ? ". " : " "}What was measured until then is below.
        </p>
      )}
      {info.busy && (
        <p class="notice" role="note">
          <strong>Doubtful:</strong> {info.busy}. Measure again when nothing else runs there.
        </p>
      )}
      <dl class="tiles">
        <Tile name="Hosts" value={String(hosts.length || run.contexts.length)}>
          {fold(hosts) || "this machine"}
          {hosts.length < ranks && `, ${ranks} ranks`}
        </Tile>
        {headline(run).map((tile) => (
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

/** The run's outcome; without one, that of its verdicts. A run without verdicts is inconclusive. */
export function overall(run: Run): Outcome {
  if (run.info.outcome) return run.info.outcome;
  const outcomes = run.verdicts.map((verdict) => verdict.outcome);
  if (outcomes.includes("FAIL")) return "FAIL";
  return outcomes.length === 0 || outcomes.includes("INCONCLUSIVE") ? "INCONCLUSIVE" : "PASS";
}

/** The title of a run that is not judged, such as a profile; empty for a run that is judged. */
function titleWithoutVerdict(run: Run): string {
  if (run.info.outcome || run.verdicts.length > 0 || run.failures.length > 0) return "";
  if (run.heaps.length > 0) return "Heap profile";
  if (run.placements.length > 0) return "NUMA profile";
  return run.measurements.some((record) => record.name.startsWith("profile.alloc."))
    ? "Allocators"
    : "";
}

/** The reason of the outcome: the criteria that failed, else those that could not be decided and why. */
function reason(run: Run, outcome: Outcome): string {
  const total = run.verdicts.length;
  const failed = run.verdicts.filter((verdict) => verdict.outcome === "FAIL");
  const open = run.verdicts.filter((verdict) => verdict.outcome === "INCONCLUSIVE");
  const counted = (some: Verdict[]) =>
    total === 1 ? "The one criterion" : `${some.length} of ${total} criteria`;
  if (failed.length > 0) return `${counted(failed)} failed: ${criterionTitles(failed)}.`;
  if (open.length > 0)
    return `${counted(open)} could not be decided: ${run.failures[0]?.problem ?? criterionTitles(open)}.`;
  const faults = run.findings.filter((finding) => (finding.severity ?? "fault") === "fault");
  const parts: string[] = [];
  if (total === 1) parts.push("The one criterion is met");
  else if (total > 0) parts.push(`${total === 2 ? "Both" : `All ${total}`} criteria are met`);
  else if (outcome !== "FAIL") parts.push("No criterion was held against this run");
  if (faults[0])
    parts.push(faults[0].cause + (faults.length > 1 ? ` (and ${faults.length - 1} more)` : ""));
  else if (run.failures[0]) parts.push(run.failures[0].problem);
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

/** The main figures of a network: bandwidth, latency, corrupted messages. */
function headline(run: Run): { name: string; value: string; note: string }[] {
  const tiles = [];
  const points = run.measurements.filter((m) => m.name.startsWith("network.") && !m.subject?.host);
  const extreme = (metric: string, better: (a: number, b: number) => boolean) =>
    points
      .filter((m) => m.metric === metric && medianOf(m) !== undefined)
      .reduce<(typeof points)[0] | undefined>(
        (best, m) => (!best || better(medianOf(m)!, medianOf(best)!) ? m : best),
        undefined,
      );
  const params = (m: (typeof points)[0]) =>
    [quantity(Number(m.params?.["size"]), "B"), m.params?.["op"]].filter(Boolean).join(" ");
  const highest = extreme("bandwidth", (a, b) => a > b);
  if (highest)
    tiles.push({
      name: "Aggregate bandwidth",
      value: quantity(medianOf(highest), "B/s"),
      note: `best, at ${params(highest)}`,
    });
  const lowest = extreme("latency", (a, b) => a < b);
  if (lowest)
    tiles.push({
      name: "Latency",
      value: quantity(medianOf(lowest), "s"),
      note: `least p50, at ${params(lowest)}`,
    });
  const checked = points.filter((m) => m.metric === "corrupted");
  if (checked.length > 0) {
    const corrupted = checked.reduce((sum, m) => sum + (medianOf(m) ?? 0), 0);
    tiles.push({
      name: "Corrupted messages",
      value: String(corrupted),
      note: corrupted === 0 ? "every payload verified" : "of the payloads verified",
    });
  }
  return tiles;
}
