// The allocator study's curves: for each phase of a block's life one panel over block size, with a curve
// for each allocator. A panel is a metric of profile.alloc.cycle or profile.alloc.retention.

import type { Curve } from "../charts/Curves";
import type { Measurement, Scalar } from "./records";
import { medianOf } from "./sweep";

const CYCLE = "profile.alloc.cycle";
const RETENTION = "profile.alloc.retention";
const COLOURS = 4; // curves of further allocators are dashed

export interface Panel {
  key: string;
  title: string;
  unit: string;
  curves: Curve[];
}

/** The settings that the study was run with. A state is "first" (a process's first batch of blocks, in fresh
 * memory) or "repeated" (its later batches). */
interface Settings {
  threads: number[];
  states: string[];
}

const PHASES: [metric: string, title: string][] = [
  ["malloc", "malloc, the clock around it alone"],
  ["malloc_touch", "malloc and one store a page, one clock around both"],
  ["first_touch", "First touch"],
  ["retouch", "Touch again"],
  ["free", "free"],
  ["first_touch_faults", "Page faults at first touch"],
];

export function allocatorPoints(measurements: readonly Measurement[]): Measurement[] {
  return measurements.filter(
    ({ name, params }) => [CYCLE, RETENTION].includes(name) && typeof params?.["size"] === "number",
  );
}

export function settings(points: readonly Measurement[]): Settings {
  const values = (name: string): Scalar[] => {
    const values = points
      .filter((point) => point.name === CYCLE)
      .map((point) => point.params?.[name]);
    return [...new Set(values.filter((value) => value !== undefined))] as Scalar[];
  };
  return {
    threads: values("threads")
      .map(Number)
      .sort((a, b) => a - b),
    states: values("state").map(String).sort().reverse(), // repeated before first
  };
}

/** The panels of one number of threads and one state, and what stays resident, which has neither. */
export function panels(points: readonly Measurement[], threads: number, state: string): Panel[] {
  const names = [...new Set(points.map((point) => String(point.params?.["allocator"])))];
  const cycles = Math.max(...points.map((point) => Number(point.params?.["cycles"] ?? 0)));
  const chosen = PHASES.map(([metric, title]) => ({
    key: metric,
    title,
    records: points.filter(
      ({ name, metric: recorded, params }) =>
        name === CYCLE &&
        recorded === metric &&
        params?.["threads"] === threads &&
        params["state"] === state,
    ),
  }));
  chosen.push({
    key: "retained",
    title: `Resident after free, ${cycles} cycles on`,
    records: points.filter(
      ({ metric, params }) => metric === "retained" && params?.["cycles"] === cycles,
    ),
  });
  return chosen
    .map(({ key, title, records }) => ({
      key,
      title,
      unit: records[0]?.unit ?? "",
      curves: curvesOf(records, names),
    }))
    .filter(({ curves }) => curves.length > 0);
}

/** A logarithmic axis cannot show zero, such as no page fault: such points are left out. */
function curvesOf(records: Measurement[], names: string[]): Curve[] {
  return names.flatMap((name, series) => {
    const points = records
      .filter((record) => record.params?.["allocator"] === name)
      .flatMap((record): [number, number][] => {
        const value = medianOf(record);
        return value !== undefined && value > 0 ? [[Number(record.params!["size"]), value]] : [];
      })
      .sort(([a], [b]) => a - b);
    return points.length > 0 ? [{ name, series, dashed: series >= COLOURS, points }] : [];
  });
}
