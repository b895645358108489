// The ranks whose profiles are added up in this one.

import { useMemo } from "preact/hooks";

import { quantity } from "../../data/format";
import { sharePercent } from "../../data/numa";
import type { NumaRank } from "../../data/numaProfile";
import { formatCountOrQuantity } from "../profile/Figure";
import { Table, type Column } from "../Table";

export function Ranks({ ranks, unit }: { ranks: NumaRank[]; unit: string }) {
  const columns = useMemo(
    (): Column<NumaRank>[] => [
      { id: "name", header: "process", value: (rank) => rank.name },
      {
        id: "amount",
        header: unit === "1" ? "accesses" : "touched first",
        numeric: true,
        value: (rank) => rank.amount,
        show: (rank) => formatCountOrQuantity(rank.amount, unit),
      },
      {
        id: "remote",
        header: "remote",
        numeric: true,
        value: (rank) => rank.remote_share ?? undefined,
        show: (rank) => sharePercent(rank.remote_share),
      },
      {
        id: "seconds",
        header: "ran for",
        numeric: true,
        value: (rank) => rank.seconds,
        show: (rank) => quantity(rank.seconds, "s"),
      },
    ],
    [unit],
  );
  return <Table caption="Processes" columns={columns} rows={ranks} />;
}
