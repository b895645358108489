// Who makes blocks larger, how often, and in how many steps for each block.

import { useMemo } from "preact/hooks";

import { FOREIGN_REALLOCATIONS, metricOf } from "../../data/heap";
import { Table, type Column } from "../Table";
import { amount } from "./Figure";
import type { ViewProps } from "./props";
import { placeColumn } from "./PlaceLink";

interface Row {
  place: number;
  times: number;
  steps: number; // for each block that was new here
  bytes: number;
}

export function Reallocations({ model, select }: ViewProps) {
  const rows = useMemo(() => {
    const counts = new Map(
      model.entries(metricOf("count"), "line").map((one) => [one.place, one.own]),
    );
    const sizes = new Map(
      model.entries(metricOf("bytes"), "line").map((one) => [one.place, one.own]),
    );
    const foreign = new Map(
      model.entries(FOREIGN_REALLOCATIONS, "line").map((one) => [one.place, one.own]),
    );
    return model
      .entries(metricOf("reallocated"), "line")
      .filter((one) => one.own > 0)
      .map(({ place, own }): Row => {
        const fresh = Math.max(1, (counts.get(place) ?? 0) - own + (foreign.get(place) ?? 0));
        return { place, times: own, steps: own / fresh, bytes: sizes.get(place) ?? 0 };
      });
  }, [model]);
  const columns = useMemo(
    (): Column<Row>[] => [
      {
        id: "times",
        header: "reallocations",
        numeric: true,
        value: (one) => one.times,
        show: (one) => amount(one.times, "1"),
      },
      {
        id: "steps",
        header: "for each block",
        numeric: true,
        value: (one) => one.steps,
        show: (one) => one.steps.toFixed(1),
      },
      {
        id: "bytes",
        header: "asked for in all",
        numeric: true,
        value: (one) => one.bytes,
        show: (one) => amount(one.bytes, "B"),
      },
      placeColumn("line", model, select, (one) => one.place),
    ],
    [model],
  );
  if (rows.length === 0) return <p class="soft">No block was reallocated.</p>;
  return <Table caption="Reallocations by line" columns={columns} rows={rows} />;
}
