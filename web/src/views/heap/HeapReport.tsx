// The report of a run that profiled a program: the profile in the whole window; the run's findings and records are
// views beside the profile's own.

import type { Run } from "../../data/load";
import { Banner } from "../Banner";
import { Hosts } from "../Hosts";
import { Findings, Verdicts } from "../Judgement";
import { Measurements } from "../Measurements";
import type { Tab } from "../profile/ProfilePage";
import { Trouble } from "../Trouble";
import { Heap } from "./Heap";

export function HeapReport({ run }: { run: Run }) {
  const { findings, verdicts, measurements, contexts } = run;
  const others: Tab[] = [
    {
      name: "findings",
      label: `Findings (${findings.length})`,
      show: findings.length > 0 ? () => <Findings run={run} /> : undefined,
    },
    {
      name: "run",
      label: "Run",
      show: () => (
        <>
          <Banner run={run} />
          {verdicts.length > 0 && <Verdicts run={run} />}
          {measurements.length > 0 && <Measurements measurements={measurements} />}
          {contexts.length > 0 && <Hosts contexts={contexts} />}
          <Absent run={run} />
        </>
      ),
    },
  ];
  const unfinished = run.info.state !== "complete" || run.info.busy;
  return (
    <>
      {unfinished && <Banner run={run} />}
      <Trouble run={run} />
      <Heap pages={run.heaps} others={others} />
    </>
  );
}

/** Why views of the largest process are missing. */
function Absent({ run }: { run: Run }) {
  const { touches, fragmentation } = run.heaps[0]!.profile;
  const reasons: string[] = [];
  if (!touches)
    reasons.push(
      "First touch: page faults were not watched, or the system does not let a user watch them (kernel.perf_event_paranoid above 2).",
    );
  if (!fragmentation)
    reasons.push(
      "Fragmentation: the process never held notably more memory than was allocated, or the trace has no addresses.",
    );
  if (reasons.length === 0) return null;
  return (
    <section>
      <h2>Views without data</h2>
      {reasons.map((reason) => (
        <p key={reason} class="soft">
          {reason}
        </p>
      ))}
    </section>
  );
}
