// HDF5: the rate of the library's calls, and the rate from opening to closing the file.

import { useMemo } from "preact/hooks";

import { GroupedBars } from "../charts/GroupedBars";
import { ratesOf, type Figure } from "../data/storage";

export function StorageHdf5({ figures }: { figures: Figure[] }) {
  const bars = useMemo(() => ratesOf(figures), [figures]);
  return (
    <section id="storage-hdf5">
      <h2>HDF5</h2>
      <GroupedBars
        title="Raw and observed rate"
        label={`Raw and observed rates for ${bars.categories.join("; ")}; the values are in the table of measurements.`}
        unit="B/s"
        bars={bars}
        stacked={false}
      />
      <p class="soft">
        Raw: bytes over the time in H5Dwrite and H5Dread. Observed: the same bytes over the time
        from opening to closing the file, minus the emulated compute time.
      </p>
    </section>
  );
}
