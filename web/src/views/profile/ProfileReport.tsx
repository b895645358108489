// The report of a run that profiled a program: the profile's page, with the run's findings and records as additional
// views.

import type { ComponentChildren } from "preact";

import type { Run } from "../../data/load";
import { Banner } from "../Banner";
import { Hosts } from "../Hosts";
import { Findings, Verdicts } from "../Judgement";
import { Measurements } from "../Measurements";
import { Trouble } from "../Trouble";
import type { Tab } from "./ProfilePage";

interface Props {
  run: Run;
  /** The views that the first profile has no data for, with the reasons. */
  absent: string[];
  /** Renders the profile with the additional views of the run. */
  show: (others: Tab[]) => ComponentChildren;
}

export function ProfileReport({ run, absent, show }: Props) {
  const unfinished = run.info.state !== "complete" || run.info.busy;
  return (
    <>
      {unfinished && <Banner run={run} />}
      <Trouble run={run} />
      {show(runTabs(run, absent))}
    </>
  );
}

function runTabs(run: Run, absent: string[]): Tab[] {
  const { findings, verdicts, measurements, contexts } = run;
  return [
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
          <Absent reasons={absent} />
        </>
      ),
    },
  ];
}

function Absent({ reasons }: { reasons: string[] }) {
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
