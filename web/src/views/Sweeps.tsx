// The sweep as curves and as a table.

import { useMemo, useState } from "preact/hooks";

import { Curves, type Curve } from "../charts/Curves";
import { exactSize, quantity } from "../data/format";
import { onePoint } from "../data/onePoint";
import type { Measurement } from "../data/records";
import { medianOf, operations, sweepTitle, type Sweep, type SweepRow } from "../data/sweep";
import { Choice } from "./Choice";
import { figureColumn, Table, type Column } from "./Table";

type Bandwidth = "bandwidth" | "client_bandwidth";

export function Sweeps({ sweeps }: { sweeps: Sweep[] }) {
  const [key, setKey] = useState(sweeps[0]!.key);
  const [bandwidth, setBandwidth] = useState<Bandwidth>("bandwidth");
  const [scale, setScale] = useState<"log" | "linear">("log");
  const sweep = sweeps.find((candidate) => candidate.key === key) ?? sweeps[0]!;
  const rates = useMemo(
    () => curves(sweep, bandwidth, scale, [[undefined, medianOf]]),
    [sweep, bandwidth, scale],
  );
  const latencies = useMemo(
    () =>
      curves(sweep, "latency", scale, [
        ["p50", medianOf],
        ["p99", (m) => m?.summary?.p99 ?? undefined],
      ]),
    [sweep, scale],
  );
  return (
    <section id="sweep">
      <h2>Sweep over message sizes</h2>
      <div class="controls">
        {sweeps.length > 1 ? (
          <Choice
            label="Sweep"
            value={key}
            options={sweeps.map((candidate) => [candidate.key, sweepTitle(candidate)])}
            onChange={setKey}
          />
        ) : (
          <p class="soft">{sweepTitle(sweep)}</p>
        )}
        <Choice<Bandwidth>
          label="Bandwidth"
          value={bandwidth}
          options={[
            ["bandwidth", "aggregate"],
            ["client_bandwidth", "per client"],
          ]}
          onChange={setBandwidth}
        />
        <Choice<"log" | "linear">
          label="Scale"
          value={scale}
          options={[
            ["log", "logarithmic"],
            ["linear", "linear"],
          ]}
          onChange={setScale}
        />
      </div>
      <div class="charts">
        <Curves
          label={`Bandwidth against message size for ${operations(sweep).join(", ")}; the table below has the figures.`}
          title={bandwidth === "bandwidth" ? "Aggregate bandwidth" : "Bandwidth per client"}
          unit="B/s"
          logarithmic={scale === "log"}
          curves={rates}
        />
        <Curves
          label={`Latency against message size for ${operations(sweep).join(", ")}; the table below has the figures.`}
          title={onePoint(latencies) ? "Latency" : "Latency (p50 solid, p99 dashed)"}
          unit="s"
          logarithmic={scale === "log"}
          curves={latencies}
        />
      </div>
      <Table
        caption="The sweep, one row per message size and operation"
        columns={columnsOf(sweep)}
        rows={sweep.rows}
      />
      <p class="soft">
        Message sizes are binary (1 KiB = 1024 B), bandwidths decimal (1 MB/s = 10⁶ B/s), both of
        payload.
      </p>
    </section>
  );
}

type ReadValue = (record: Measurement | undefined) => number | undefined;

function curves(
  sweep: Sweep,
  metric: string,
  scale: "log" | "linear",
  readings: [detail: string | undefined, read: ReadValue][],
): Curve[] {
  return operations(sweep).flatMap((op, series) =>
    readings.map(([detail, read], index) => ({
      name: op,
      detail,
      series,
      dashed: index > 0,
      points: sweep.rows
        .filter((row) => row.op === op)
        .flatMap((row): [number, number][] => {
          const value = read(row.metrics[metric]);
          const drawable = value !== undefined && (scale === "linear" || value > 0);
          return drawable ? [[row.size, value]] : [];
        }),
    })),
  );
}

function figure(
  id: string,
  header: string,
  metric: string,
  unit: string,
  read: ReadValue = medianOf,
): Column<SweepRow> {
  return figureColumn(
    id,
    header,
    (row) => read(row.metrics[metric]),
    (value) => quantity(value, unit),
  );
}

const ALL_COLUMNS: Column<SweepRow>[] = [
  figureColumn("size", "Size", (row) => row.size, exactSize),
  { id: "op", header: "Operation", value: (row) => row.op },
  figure("wall_time", "Wall time", "wall_time", "s"),
  figure("bandwidth", "Aggregate", "bandwidth", "B/s"),
  figure("client_bandwidth", "Per client", "client_bandwidth", "B/s"),
  figure("p50", "Latency p50", "latency", "s"),
  figure("p99", "Latency p99", "latency", "s", (record) => record?.summary?.p99 ?? undefined),
  figure("rate", "Operations/s", "rate", "1/s"),
  {
    id: "iterations",
    header: "Iterations",
    numeric: true,
    value: (row) =>
      Number(Object.values(row.metrics)[0]?.params?.["iterations"] ?? NaN) || undefined,
  },
  figure("corrupted", "Corrupted", "corrupted", "1"),
];

/** The columns of the table; that of corrupted messages only if there are any. */
function columnsOf(sweep: Sweep): Column<SweepRow>[] {
  return sweep.rows.some((row) => (medianOf(row.metrics["corrupted"]) ?? 0) > 0)
    ? ALL_COLUMNS
    : ALL_COLUMNS.slice(0, -1);
}
