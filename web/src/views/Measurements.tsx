// The table of all measurements of hosts and pairs, without sweeps.

import { formatParameters, percent, quantity } from "../data/format";
import { naturally } from "../data/hosts";
import type { Measurement } from "../data/records";
import { medianOf } from "../data/sweep";
import { subjectText } from "./Judgement";
import { figureColumn, Table, type Column } from "./Table";

const COLUMNS: Column<Measurement>[] = [
  {
    id: "subject",
    header: "Host",
    value: (record) =>
      subjectText(record.subject) ||
      (record.name.startsWith("storage.") ? "all ranks" : "this machine"),
  },
  { id: "name", header: "Measurement", value: (record) => record.name },
  { id: "metric", header: "Metric", value: (record) => record.metric },
  {
    id: "median",
    header: "Median",
    numeric: true,
    value: medianOf,
    show: (record) =>
      (record.status ?? "ok") === "ok" ? (
        quantity(medianOf(record), record.unit)
      ) : (
        <span class="soft">
          {record.status}: {record.reason || "no reason given"}
        </span>
      ),
  },
  figureColumn("spread", "Spread (MAD)", spread, (value) => percent(value, false)),
  { id: "n", header: "Samples", numeric: true, value: (record) => record.summary?.n },
  // The longest column is last, because rows do not wrap.
  { id: "params", header: "Parameters", value: (record) => formatParameters(record.params ?? {}) },
];

/** The median absolute deviation as a share of the median: how far the figure can be trusted. */
function spread({ summary }: Measurement): number | undefined {
  return summary?.median && summary.n > 1
    ? (summary.mad ?? 0) / Math.abs(summary.median)
    : undefined;
}

export function Measurements({ measurements }: { measurements: Measurement[] }) {
  const order = (a: Measurement, b: Measurement) =>
    a.name.localeCompare(b.name) ||
    formatParameters(a.params ?? {}).localeCompare(formatParameters(b.params ?? {})) ||
    naturally(subjectText(a.subject), subjectText(b.subject));
  return (
    <section id="measurements">
      <h2>Measurements of hosts and pairs</h2>
      <Table
        caption="Measurements of hosts and pairs"
        columns={COLUMNS}
        rows={[...measurements].sort(order)}
      />
    </section>
  );
}
