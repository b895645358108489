// A solver's time, stacked: computing, communication, writing.

import { useMemo } from "preact/hooks";

import { Grouped } from "../charts/Grouped";
import { phasesOf, type Figure } from "../data/storage";

export function StorageSolver({ figures }: { figures: Figure[] }) {
  const bars = useMemo(() => phasesOf(figures), [figures]);
  return (
    <section id="storage-solver">
      <h2>Reaction-diffusion solver</h2>
      <Grouped
        title="Phases of the solver"
        label={`Seconds of compute, communication and write for ${bars.categories.join("; ")}; the values are in the table of measurements.`}
        unit="s"
        bars={bars}
        stacked
      />
      <p class="soft">
        The longest rank's time in each phase; medians over all rounds. Comparing what was written
        is nobody's time.
      </p>
    </section>
  );
}
