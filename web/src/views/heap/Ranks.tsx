// Processes that were added up, and those that are not like the others.

import { useMemo } from "preact/hooks";

import { quantity } from "../../data/format";
import type { HeapRank } from "../../data/heapPage";
import { Table, type Column } from "../Table";
import { amount } from "./Figure";

export function Ranks({ ranks }: { ranks: HeapRank[] }) {
  const columns = useMemo((): Column<HeapRank>[] => {
    const number = (
      id: "peak" | "bytes" | "count" | "leaked",
      header: string,
      unit: string,
    ): Column<HeapRank> => ({
      id,
      header,
      numeric: true,
      value: (one) => one[id],
      show: (one) => (
        <span class={one.outlier.includes(id) ? "suspect" : undefined}>
          {amount(one[id], unit)}
        </span>
      ),
    });
    return [
      { id: "name", header: "process", value: (one) => one.name },
      {
        id: "outlier",
        header: "",
        value: (one) => one.outlier.length,
        show: (one) => (one.outlier.length ? "unlike the others" : ""),
      },
      number("peak", "peak", "B"),
      number("bytes", "allocated", "B"),
      number("count", "allocations", "1"),
      number("leaked", "not freed", "B"),
      {
        id: "seconds",
        header: "ran for",
        numeric: true,
        value: (one) => one.seconds,
        show: (one) => quantity(one.seconds, "s"),
      },
    ];
  }, []);
  return <Table caption="Processes" columns={columns} rows={ranks} />;
}
