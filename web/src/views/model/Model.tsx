// The section of the network's model: the platform as a picture, the capacities with their sources, and every curve of
// the study, measured and simulated.

import { useMemo } from "preact/hooks";

import { Curves } from "../../charts/Curves";
import { Overlay } from "../../charts/Overlay";
import { percent, quantity } from "../../data/format";
import { folded, overlaid, platform, type Overlaid } from "../../data/model";
import type { Capacity, Comparison } from "../../data/records";
import { Table, type Column } from "../Table";
import { formatCapacity, Picture } from "./Picture";
import "./model.css";

export function Model({
  capacities,
  comparisons,
}: {
  capacities: Capacity[];
  comparisons: Comparison[];
}) {
  const picture = useMemo(() => platform(capacities), [capacities]);
  const rows = useMemo(() => folded(capacities), [capacities]);
  const curves = useMemo(() => overlaid(comparisons), [comparisons]);
  const rates = useMemo(() => panels(curves.filter(({ unit }) => unit === "B/s")), [curves]);
  const times = curves.filter(({ unit }) => unit === "s");
  return (
    <section id="model">
      <h2>The network's model</h2>
      <Picture platform={picture} />
      <Table caption="Capacities with 95 % interval and source" columns={CAPACITIES} rows={rows} />
      {curves.length > 0 && (
        <>
          <h3>Simulated against measured</h3>
          <p class="soft">
            Symbols are measured; the dashed line is the same experiment in SimGrid, on the platform
            that was written.
          </p>
          <div class="charts">
            {rates.map((panel) => (
              <Overlay key={panel.title} title={panel.title} curves={panel.curves} />
            ))}
            {times.length > 0 && (
              <Curves
                title="Time of a message (measured solid, simulated dashed)"
                label="Time of a message against its size, measured and simulated; the table below has the figures."
                unit="s"
                logarithmic
                curves={times.flatMap((curve, series) => [
                  {
                    name: curve.name,
                    series,
                    points: curve.points.map((point): [number, number] => [
                      point.x,
                      point.measured,
                    ]),
                  },
                  {
                    name: curve.name,
                    detail: "simulated",
                    series,
                    dashed: true,
                    points: curve.points.flatMap((point): [number, number][] =>
                      point.simulated ? [[point.x, point.simulated]] : [],
                    ),
                  },
                ])}
              />
            )}
          </div>
          <Table
            caption="Every point, measured and simulated"
            columns={POINTS}
            rows={comparisons}
          />
        </>
      )}
    </section>
  );
}

/** The curves by chart: those of an experiment, or of a cabinet with the others; at most four in a chart. */
function panels(curves: Overlaid[]): { title: string; curves: Overlaid[] }[] {
  const byTitle = new Map<string, Overlaid[]>();
  for (const curve of curves) {
    const [cabinet, kind = cabinet!] = curve.name.split(": ");
    const trunk = ["to the others", "from the others", "both directions"].includes(kind);
    const title = trunk
      ? `${cabinet} and the others`
      : curve.name.startsWith("each host")
        ? "each host"
        : kind;
    byTitle.set(title, [...(byTitle.get(title) ?? []), curve]);
  }
  return [...byTitle].flatMap(([title, all]) =>
    Array.from({ length: Math.ceil(all.length / 4) }, (_, part) => ({
      title: all.length > 4 ? `${title} (${part + 1})` : title,
      curves: all.slice(4 * part, 4 * part + 4),
    })),
  );
}

const CAPACITIES: Column<Capacity>[] = [
  { id: "level", header: "Level", value: (row) => row.level },
  { id: "resource", header: "Resource", value: (row) => row.resource },
  { id: "direction", header: "Direction", value: (row) => row.direction },
  {
    id: "value",
    header: "Capacity",
    numeric: true,
    value: (row) => row.value ?? undefined,
    show: (row) => (row.state === "unknown" ? "unknown" : formatCapacity(row)),
  },
  {
    id: "interval",
    header: "95 % interval",
    value: (row) => row.low ?? undefined,
    show: (row) =>
      typeof row.low === "number"
        ? `${quantity(row.low, row.unit)} to ${quantity(row.high, row.unit)}`
        : "",
  },
  { id: "reason", header: "Source", value: (row) => row.reason ?? "" },
];

const POINTS: Column<Comparison>[] = [
  { id: "curve", header: "Curve", value: (row) => row.curve },
  {
    id: "x",
    header: "At",
    numeric: true,
    value: (row) => row.x,
    show: (row) => row.label || `${row.x} ${row.axis}`,
  },
  {
    id: "measured",
    header: "Measured",
    numeric: true,
    value: (row) => row.measured,
    show: (row) => quantity(row.measured, row.unit),
  },
  {
    id: "simulated",
    header: "Simulated",
    numeric: true,
    value: (row) => row.simulated ?? undefined,
    show: (row) =>
      typeof row.simulated === "number" ? quantity(row.simulated, row.unit) : "not simulated",
  },
  {
    id: "error",
    header: "Error",
    numeric: true,
    value: (row) => (typeof row.error === "number" ? Math.abs(row.error) : undefined),
    show: (row) => percent(row.error),
  },
];
