// Who makes blocks larger, how often, and in how many steps for each block.

import { useMemo } from "preact/hooks";

import { FOREIGN_REALLOCATIONS, metricOf } from "../../data/heap";
import { Table, type Column } from "../Table";
import { amount } from "./Figure";
import type { ViewProps } from "./props";
import { locationColumn } from "./LocationLink";

interface Row {
  location: number;
  times: number;
  steps: number; // for each block that was new here
  bytes: number;
}

export function Reallocations({ model, select }: ViewProps) {
  const rows = useMemo(() => {
    const counts = new Map(
      model.entries(metricOf("count"), "line").map((entry) => [entry.location, entry.exclusive]),
    );
    const sizes = new Map(
      model.entries(metricOf("bytes"), "line").map((entry) => [entry.location, entry.exclusive]),
    );
    const foreign = new Map(
      model
        .entries(FOREIGN_REALLOCATIONS, "line")
        .map((entry) => [entry.location, entry.exclusive]),
    );
    return model
      .entries(metricOf("reallocated"), "line")
      .filter((entry) => entry.exclusive > 0)
      .map(({ location, exclusive }): Row => {
        const fresh = Math.max(
          1,
          (counts.get(location) ?? 0) - exclusive + (foreign.get(location) ?? 0),
        );
        return {
          location,
          times: exclusive,
          steps: exclusive / fresh,
          bytes: sizes.get(location) ?? 0,
        };
      });
  }, [model]);
  const columns = useMemo(
    (): Column<Row>[] => [
      {
        id: "times",
        header: "reallocations",
        numeric: true,
        value: (entry) => entry.times,
        show: (entry) => amount(entry.times, "1"),
      },
      {
        id: "steps",
        header: "for each block",
        numeric: true,
        value: (entry) => entry.steps,
        show: (entry) => entry.steps.toFixed(1),
      },
      {
        id: "bytes",
        header: "allocated in all",
        numeric: true,
        value: (entry) => entry.bytes,
        show: (entry) => amount(entry.bytes, "B"),
      },
      locationColumn("line", model, select, (entry) => entry.location),
    ],
    [model],
  );
  if (rows.length === 0) return <p class="soft">No block was reallocated.</p>;
  return <Table caption="Reallocations by line" columns={columns} rows={rows} />;
}
