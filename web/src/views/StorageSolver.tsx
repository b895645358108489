// The time of the reaction-diffusion solver: a bar for each variant and number of nodes, stacked from the phases
// compute, communication and write. `figures` are those of the benchmark "storage.reaction_diffusion".

import { useMemo } from "preact/hooks";

import { GroupedBars } from "../charts/GroupedBars";
import { phasesOf, type Figure } from "../data/storage";

export function StorageSolver({ figures }: { figures: Figure[] }) {
  const bars = useMemo(() => phasesOf(figures), [figures]);
  return (
    <section id="storage-solver">
      <h2>Reaction-diffusion solver</h2>
      <GroupedBars
        title="Phases of the solver"
        label={`Seconds of compute, communication and write for ${bars.categories.join("; ")}; the values are in the table of measurements.`}
        unit="s"
        bars={bars}
        stacked
      />
      <p class="soft">
        Each phase shows the time of the rank that takes longest; medians over all rounds. The
        verification of the written data is not timed.
      </p>
    </section>
  );
}
