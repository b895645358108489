// The table of processes whose profiles are added up in this one. A value that is an outlier among the
// processes is marked, and so is its process.

import { useMemo } from "preact/hooks";

import type { HeapRank } from "../../data/heapProfile";
import { Table, type Column } from "../Table";
import { amountColumn, formatCountOrQuantity } from "../profile/Figure";

export function Ranks({ ranks }: { ranks: HeapRank[] }) {
  const columns = useMemo((): Column<HeapRank>[] => {
    const totalColumn = (
      id: "peak" | "bytes" | "count" | "leaked",
      header: string,
      unit: string,
    ): Column<HeapRank> => ({
      id,
      header,
      numeric: true,
      value: (rank) => rank[id],
      show: (rank) => (
        <span class={rank.outlier.includes(id) ? "outlier" : undefined}>
          {formatCountOrQuantity(rank[id], unit)}
        </span>
      ),
    });
    return [
      { id: "name", header: "process", value: (rank) => rank.name },
      {
        id: "outlier",
        header: "",
        value: (rank) => rank.outlier.length,
        show: (rank) => (rank.outlier.length ? "outlier" : ""),
      },
      totalColumn("peak", "peak", "B"),
      totalColumn("bytes", "allocated", "B"),
      totalColumn("count", "allocations", "1"),
      totalColumn("leaked", "not freed", "B"),
      amountColumn("seconds", "ran for", (rank) => rank.seconds, "s"),
    ];
  }, []);
  return <Table caption="Processes" columns={columns} rows={ranks} />;
}
