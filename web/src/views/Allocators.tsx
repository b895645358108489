// The allocator study as curves over the size of a block: a panel a phase, a curve an allocator.

import { useMemo, useState } from "preact/hooks";

import { Curves } from "../charts/Curves";
import { settings, panels } from "../data/allocators";
import type { Measurement } from "../data/records";
import { Choice } from "./Choice";

const STATES: Record<string, string> = {
  repeated: "again and again",
  first: "first batch of a process",
};

export function Allocators({ points }: { points: Measurement[] }) {
  const { threads, states } = useMemo(() => settings(points), [points]);
  const [count, setCount] = useState(String(threads[0] ?? 1));
  const [state, setState] = useState(states[0] ?? "repeated");
  const chosen = useMemo(() => panels(points, Number(count), state), [points, count, state]);
  return (
    <section id="allocators">
      <h2>Allocators over the size of a block</h2>
      <div class="controls">
        {threads.length > 0 && (
          <Choice
            label="Threads"
            value={count}
            options={threads.map((option) => [String(option), String(option)])}
            onChange={setCount}
          />
        )}
        {states.length > 0 && (
          <Choice
            label="Blocks"
            value={state}
            options={states.map((option) => [option, STATES[option] ?? option])}
            onChange={setState}
          />
        )}
        <p class="soft">
          Both axes are logarithmic; what is none at all, such as no page fault, is left out.
        </p>
      </div>
      <div class="charts">
        {chosen.map(({ key, title, unit, curves }) => (
          <Curves
            key={key}
            title={title}
            label={`${title} against block size for ${curves.map(({ name }) => name).join(", ")}; the values are in the table of measurements.`}
            unit={unit}
            sizeName="block size"
            logarithmic
            curves={curves}
          />
        ))}
      </div>
    </section>
  );
}
