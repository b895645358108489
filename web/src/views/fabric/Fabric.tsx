// A fabric under a schedule: conflicts over steps, and for the chosen step the switches by level with the cables
// that several flows share. The pairs of a cable appear when it is chosen.

import { useMemo, useState } from "preact/hooks";

import { Steps } from "../../charts/Steps";
import { levels, overSteps, sharedBySteps, totals, type SharedLink } from "../../data/fabric";
import { percent } from "../../data/format";
import type { Context, Flows, Measurement } from "../../data/records";
import { Picture } from "./Picture";
import "./fabric.css";

const SHOWN_PAIRS = 200;

interface Props {
  measurements: Measurement[];
  shared: Flows[];
  contexts: Context[];
}

export function Fabric({ measurements, shared, contexts }: Props) {
  const total = useMemo(() => totals(measurements), [measurements]);
  const points = useMemo(() => overSteps(measurements, "conflicts"), [measurements]);
  const rows = useMemo(() => levels(contexts), [contexts]);
  const bySteps = useMemo(() => sharedBySteps(shared), [shared]);
  const worst = points.reduce((a, b) => (b[1] > a[1] ? b : a), points[0] ?? [0, 0])[0];
  const [step, setStep] = useState(worst);
  const [cable, setCable] = useState<[string, string] | null>(null);
  if (!total || points.length === 0) return null;
  const links = bySteps.get(step) ?? [];
  const conflicts = points.find(([k]) => k === step)?.[1] ?? 0;
  const chosen = cable ? links.filter((link) => isBetween(link, cable)) : links;
  return (
    <section id="fabric">
      <h2>Conflicts on the fabric</h2>
      <p>
        {total.schedule} of {total.ranks} ranks: {total.conflicts} conflicts,{" "}
        {percent(total.share, false)} of all pairs; {total.rounds} rounds, bound {total.bound}.
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
            onInput={(event) => {
              setStep(Number(event.currentTarget.value));
              setCable(null);
            }}
          />
        </label>
        <p class="soft">
          {conflicts === 0
            ? "No link carries two flows."
            : links.length === 0
              ? `${conflicts} conflicts; the run lists the links of worse steps only.`
              : `${links.length} links carry more than one flow. A cable shows its pairs.`}
        </p>
      </div>
      {rows.length > 1 && <Picture rows={rows} links={links} cable={cable} onCable={setCable} />}
      {links.length > 0 && <Pairs links={chosen} />}
    </section>
  );
}

function isBetween(link: SharedLink, [one, other]: [string, string]): boolean {
  return (link.from === one && link.to === other) || (link.from === other && link.to === one);
}

function Pairs({ links }: { links: SharedLink[] }) {
  return (
    <table class="pairs" aria-label="Pairs that share a link">
      <thead>
        <tr>
          <th>link</th>
          <th>flows</th>
          <th>pairs</th>
        </tr>
      </thead>
      <tbody>
        {links.slice(0, SHOWN_PAIRS).map((link) => (
          <tr key={link.name}>
            <td>{link.name}</td>
            <td>{link.load}</td>
            <td>{link.pairs.map(([source, target]) => `${source} → ${target}`).join(", ")}</td>
          </tr>
        ))}
      </tbody>
      {links.length > SHOWN_PAIRS && (
        <tfoot>
          <tr>
            <td colSpan={3}>and {links.length - SHOWN_PAIRS} more links</td>
          </tr>
        </tfoot>
      )}
    </table>
  );
}
