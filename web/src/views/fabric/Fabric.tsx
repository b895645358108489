// The section of a fabric with a schedule: conflicts over steps, and for the chosen step the switches by level with the
// load of each cable. A click on a cable shows the pairs that use it.

import { useEffect, useMemo, useState } from "preact/hooks";

import { Steps } from "../../charts/Steps";
import { overSteps, totals } from "../../data/fabric";
import { crossedLinks, loadsOf, unpackPlan, type Plan } from "../../data/plan";
import type { Context, Measurement } from "../../data/records";
import { Pairs } from "./Pairs";
import { Picture, type Cable } from "./Picture";
import "./fabric.css";

interface Props {
  measurements: Measurement[];
  contexts: Context[];
}

export function Fabric({ measurements, contexts }: Props) {
  const total = useMemo(() => totals(measurements), [measurements]);
  const points = useMemo(() => overSteps(measurements, "conflicts"), [measurements]);
  const worst = points.reduce((a, b) => (b[1] > a[1] ? b : a), points[0] ?? [0, 0])[0];
  const [step, setStep] = useState(worst);
  const plan = usePlan(contexts);
  if (!total || points.length === 0) return null;
  const conflicts = points.find(([k]) => k === step)?.[1] ?? 0;
  return (
    <section id="fabric">
      <h2>Conflicts on the fabric</h2>
      <p>
        {total.schedule} of {total.ranks} ranks: {total.conflicts} conflicts,{" "}
        {+total.conflictsOfPair.toPrecision(3)} a pair of ranks; {total.lockstepRounds} rounds,
        bound {total.roundsWithoutConflict}.
      </p>
      <Steps
        title="Conflicts of each step"
        label={`Conflicts of each of ${points.length} steps; at worst step ${worst}.`}
        points={points}
        chosen={step}
      />
      <div class="controls">
        <label class="choice step">
          <span>Step {step}</span>
          <input
            type="range"
            min={points[0]![0]}
            max={points[points.length - 1]![0]}
            value={step}
            onInput={(event) => setStep(Number(event.currentTarget.value))}
          />
        </label>
        <p class="soft">
          {conflicts === 0 ? "No link carries two flows." : `${conflicts} conflicts.`}{" "}
          {plan === null
            ? "The fabric is too large to be drawn, or the schedule too long to be kept in this page."
            : "Choose a cable to see its pairs."}
        </p>
      </div>
      {plan && <LoadedCables plan={plan} step={step} />}
    </section>
  );
}

/** The plan; undefined while it is unpacked, null in a run without one. */
function usePlan(contexts: Context[]): Plan | null | undefined {
  const [plan, setPlan] = useState<Plan | null>();
  useEffect(() => {
    let isMounted = true;
    void unpackPlan(contexts).then((result) => isMounted && setPlan(result ?? null));
    return () => {
      isMounted = false;
    };
  }, [contexts]);
  return plan;
}

function LoadedCables({ plan, step }: { plan: Plan; step: number }) {
  const [cable, setCable] = useState<Cable | null>(null);
  const loads = useMemo(() => loadsOf(plan, step), [plan, step]);
  const links = useMemo(
    () =>
      cable
        ? crossedLinks(plan, step, loads, 1, new Set(cable.links))
        : crossedLinks(plan, step, loads, 2),
    [plan, step, loads, cable],
  );
  return (
    <>
      <Picture plan={plan} loads={loads} cable={cable} onCable={setCable} />
      {cable && links.length === 0 && (
        <p class="soft">
          {cable.label} carries no flow in step {step}.
        </p>
      )}
      {links.length > 0 && <Pairs links={links} />}
    </>
  );
}
