// The ranks whose profiles are added up in this one.

import { useMemo } from "preact/hooks";

import { sharePercent } from "../../data/numa";
import type { NumaRank } from "../../data/numaProfile";
import { amountColumn } from "../profile/Figure";
import { figureColumn, Table, type Column } from "../Table";

export function Ranks({ ranks, unit }: { ranks: NumaRank[]; unit: string }) {
  const columns = useMemo(
    (): Column<NumaRank>[] => [
      { id: "name", header: "process", value: (rank) => rank.name },
      amountColumn(
        "amount",
        unit === "1" ? "accesses" : "touched first",
        (rank) => rank.amount,
        unit,
      ),
      figureColumn("remote", "remote", (rank) => rank.remote_share, sharePercent),
      amountColumn("seconds", "ran for", (rank) => rank.seconds, "s"),
    ],
    [unit],
  );
  return <Table caption="Processes" columns={columns} rows={ranks} />;
}
