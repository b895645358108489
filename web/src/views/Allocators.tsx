// The allocator study as charts over block size: one chart for each phase of a block's life (malloc,
// first touch, free, ...), one curve for each allocator. The reader chooses the number of threads, and
// whether a process's first batch of blocks or its later batches are shown.

import { useMemo, useState } from "preact/hooks";

import { Curves } from "../charts/Curves";
import { settings, panels } from "../data/allocators";
import type { Measurement } from "../data/records";
import { Choice } from "./Choice";

// By the engine's parameter "state": memory is fresh in the first batch, reused in later ones.
const STATE_LABELS: Record<string, string> = {
  repeated: "later batches of a process",
  first: "first batch of a process",
};

export function Allocators({ points }: { points: Measurement[] }) {
  const { threads, states } = useMemo(() => settings(points), [points]);
  const [count, setCount] = useState(String(threads[0] ?? 1));
  const [state, setState] = useState(states[0] ?? "repeated");
  const chosenPanels = useMemo(() => panels(points, Number(count), state), [points, count, state]);
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
            options={states.map((option) => [option, STATE_LABELS[option] ?? option])}
            onChange={setState}
          />
        )}
        <p class="soft">
          Both axes are logarithmic, so values of zero (no page fault) are not shown.
        </p>
      </div>
      <div class="charts">
        {chosenPanels.map(({ key, title, unit, curves }) => (
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
