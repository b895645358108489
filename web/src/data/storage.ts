// The data of storage benchmarks for the report: figures over all rounds (with the same median as in
// python/assay/records/storage.py), as curves, bars and maps.

import type { Curve } from "../charts/Curves";
import { exactSize } from "./format";
import { median, type Matrix } from "./matrix";
import type { Measurement, Scalar } from "./records";

export const IOR = "storage.ior";
export const SOLVER = "storage.reaction_diffusion";
export const HDF5 = "storage.hdf5";
export const DEVICE = "storage.device";
const VARIANTS = ["stock", "accelerated"];
const ROUND_PARAMS = ["round", "digest"]; // parameters that differ between rounds

type Params = Record<string, Scalar>;

/** One metric under one set of parameters, over all rounds. */
export interface Figure {
  name: string;
  metric: string;
  unit: string;
  params: Params;
  host: string;
  device: string;
  rounds: Map<string, number[]>; // the samples of each
  value: number; // the median of all
}

/** The figures of one benchmark; records that were waived or failed have none. */
export function figuresOf(measurements: readonly Measurement[], name: string): Figure[] {
  const byKey = new Map<string, Figure>();
  for (const record of measurements) {
    const middle = record.summary?.median;
    if (record.name !== name || middle === undefined || (record.status ?? "ok") !== "ok") continue;
    const params = Object.fromEntries(
      Object.entries(record.params ?? {}).filter(([key]) => !ROUND_PARAMS.includes(key)),
    );
    const host = name === DEVICE ? (record.subject?.host ?? "") : "";
    const key = JSON.stringify([record.metric, host, Object.entries(params).sort()]);
    const figure = byKey.get(key) ?? {
      name,
      metric: record.metric,
      unit: record.unit,
      params,
      host,
      device: record.subject?.device ?? "",
      rounds: new Map<string, number[]>(),
      value: NaN,
    };
    // A round that was interrupted and repeated in a resumed run has two records: the later one counts.
    figure.rounds.set(
      JSON.stringify(record.params),
      record.samples?.length ? record.samples : [middle],
    );
    byKey.set(key, figure);
  }
  for (const figure of byKey.values())
    figure.value = median(Float32Array.from([...figure.rounds.values()].flat()));
  return [...byKey.values()];
}

export function isStorage(record: Measurement): boolean {
  return record.name.startsWith("storage.");
}

/** The values of a parameter: numbers ascending, texts in the order of measurement. */
export function valuesOf(figures: readonly Figure[], param: string): Scalar[] {
  const values = [
    ...new Set(figures.map(({ params }) => params[param]).filter((value) => value !== undefined)),
  ] as Scalar[];
  return values.every((value) => typeof value === "number")
    ? (values as number[]).sort((a, b) => a - b)
    : values;
}

export interface Panel {
  key: string;
  title: string;
  curves: Curve[];
}

const PANELS: [op: string, data: string | undefined, title: string][] = [
  ["write", undefined, "Write"],
  ["read", "own", "Local read: one's own data"],
  ["read", "another rank's", "Read of another rank's data, on the node"],
  ["read", "a random rank's", "Read of a random rank's data"],
  ["read", "another node's", "Remote read: another node's data"],
];

/** Bandwidth over `axis` ("transfer" or "nodes"): a panel for each operation, a curve for each variant and MPI. */
export function panelsOf(figures: readonly Figure[], axis: string, fixed: Params): Panel[] {
  const chosen = figures.filter(
    (figure) =>
      figure.metric === "bandwidth" &&
      Object.entries(fixed).every(([key, value]) => figure.params[key] === value),
  );
  return PANELS.map(([op, data, title]) => ({
    key: `${op} ${data ?? ""}`,
    title,
    curves: curvesOf(
      chosen.filter(({ params }) => params["op"] === op && params["data"] === data),
      axis,
    ),
  })).filter(({ curves }) => curves.length > 0);
}

function curvesOf(figures: Figure[], axis: string): Curve[] {
  const mpis = valuesOf(figures, "mpi");
  return VARIANTS.flatMap((variant, series) =>
    mpis.flatMap((mpi, k): Curve[] => {
      const points = figures
        .filter(({ params }) => params["io"] === variant && params["mpi"] === mpi)
        .map(({ params, value }): [number, number] => [Number(params[axis]), value])
        .sort(([a], [b]) => a - b);
      const name = mpis.length > 1 ? `${variant}, ${mpi}` : variant;
      return points.length > 0
        ? [{ name, series: mpis.length > 1 ? 2 * k + series : series, points }]
        : [];
    }),
  );
}

export interface Bars {
  categories: string[];
  series: { name: string; values: (number | null)[] }[];
}

const PHASES: [metric: string, name: string][] = [
  ["compute_time", "compute"],
  ["communication_time", "communication"],
  ["write_time", "write"],
];

function joinParams(params: Params, ...keys: string[]): string {
  return keys
    .flatMap((key) =>
      params[key] === undefined ? [] : [`${params[key]}${key === "nodes" ? " nodes" : ""}`],
    )
    .join(", ");
}

/** The solver's time: a bar for each variant, number of nodes and kind of output, stacked by phase. */
export function phasesOf(figures: readonly Figure[]): Bars {
  return barsOf(figures, PHASES, (params) => joinParams(params, "io", "mpi", "nodes", "iotype"));
}

/** HDF5's raw and observed rates. */
export function ratesOf(figures: readonly Figure[]): Bars {
  const rates: [string, string][] = [
    ["raw_rate", "raw"],
    ["observed_rate", "observed"],
  ];
  return barsOf(figures, rates, (params) =>
    joinParams(params, "op", "io", "mpi", "nodes", "mem_pattern", "file_pattern", "read_option"),
  );
}

function barsOf(
  figures: readonly Figure[],
  metrics: [metric: string, name: string][],
  title: (params: Params) => string,
): Bars {
  const selected = figures.filter(({ metric }) => metrics.some(([name]) => name === metric));
  const categories = [...new Set(selected.map(({ params }) => title(params)))];
  const series = metrics.map(([metric, name]) => ({
    name,
    values: categories.map(
      (category) =>
        selected.find((figure) => figure.metric === metric && title(figure.params) === category)
          ?.value ?? null,
    ),
  }));
  return { categories, series };
}

/** A device's bandwidth: threads in rows, transfer sizes in columns. */
export function deviceMap(figures: readonly Figure[]): Matrix {
  const threads = valuesOf(figures, "threads") as number[];
  const sizes = valuesOf(figures, "transfer") as number[];
  const values = new Float32Array(threads.length * sizes.length).fill(NaN);
  for (const { params, value } of figures) {
    values[
      threads.indexOf(Number(params["threads"])) * sizes.length +
        sizes.indexOf(Number(params["transfer"]))
    ] = value;
  }
  const middle = median(values);
  return {
    key: "device",
    name: DEVICE,
    metric: "bandwidth",
    unit: "B/s",
    lowerIsBetter: false,
    params: {},
    rows: threads.map((count) => `${count} thread${count === 1 ? "" : "s"}`),
    columns: sizes.map(exactSize),
    values,
    measured: figures.length,
    median: middle,
    worst: Math.min(
      0,
      ...[...values].filter((value) => !Number.isNaN(value)).map((value) => value / middle - 1),
    ),
  };
}

export function deviceCurves(figures: readonly Figure[]): Curve[] {
  return valuesOf(figures, "threads").map((threads, series) => ({
    name: `${threads} thread${threads === 1 ? "" : "s"}`,
    series,
    dashed: series >= 4,
    points: figures
      .filter(({ params }) => params["threads"] === threads)
      .map(({ params, value }): [number, number] => [Number(params["transfer"]), value])
      .sort(([a], [b]) => a - b),
  }));
}
