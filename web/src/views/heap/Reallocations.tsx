// The view of reallocations by line: how often, and how many for each block.

import { useMemo } from "preact/hooks";

import { figureColumn, Table, type Column } from "../Table";
import { amountColumn } from "../profile/Figure";
import { locationColumn } from "../profile/LocationLink";
import type { HeapViewProps } from "./props";

interface Row {
  location: number;
  times: number;
  steps: number; // reallocations for each new block of the line
  bytes: number;
}

export function Reallocations({ model, select }: HeapViewProps) {
  const rows = useMemo(() => {
    const exclusive = (metric: string) =>
      new Map(
        model
          .entries(model.metric(metric), "line")
          .map((entry) => [entry.location, entry.exclusive]),
      );
    const [sizes, steps] = [exclusive("bytes"), exclusive("steps")];
    return [...exclusive("reallocated")]
      .filter(([, times]) => times > 0)
      .map(([location, times]): Row => ({
        location,
        times,
        steps: steps.get(location) || times,
        bytes: sizes.get(location) ?? 0,
      }));
  }, [model]);
  const columns = useMemo(
    (): Column<Row>[] => [
      amountColumn("times", "reallocations", (entry) => entry.times, "1"),
      figureColumn(
        "steps",
        "for each block",
        (entry) => entry.steps,
        (value) => value.toFixed(1),
      ),
      amountColumn("bytes", "allocated in all", (entry) => entry.bytes, "B"),
      locationColumn("line", model, select, (entry) => entry.location),
    ],
    [model],
  );
  return <Table caption="Reallocations by line" columns={columns} rows={rows} />;
}
