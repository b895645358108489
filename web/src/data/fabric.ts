// The conflicts of a schedule on a fabric: totals, and the curve over steps. The records are those of
// python/assay/measure/fabric.py.

import type { Measurement } from "./records";

export interface Totals {
  schedule: string;
  ranks: number;
  conflicts: number;
  share: number;
  rounds: number;
  bound: number;
}

export function isOfFabric({ name }: Measurement): boolean {
  return name.startsWith("fabric.");
}

/** Whether a measurement is a point of the curve over steps. */
export function isOfStep(record: Measurement): boolean {
  return isOfFabric(record) && record.params?.["step"] !== undefined;
}

/** The totals of a schedule; undefined in a run without one (`assay fabric check`). */
export function totals(measurements: readonly Measurement[]): Totals | undefined {
  const value = (metric: string) =>
    measurements.find((record) => record.metric === metric && record.params?.["step"] === undefined)
      ?.summary?.median ?? NaN;
  const head = measurements.find((record) => record.metric === "conflicts_total");
  return (
    head && {
      schedule: String(head.params?.["schedule"]),
      ranks: Number(head.params?.["ranks"]),
      conflicts: value("conflicts_total"),
      share: value("conflicts_share"),
      rounds: value("rounds"),
      bound: value("rounds_bound"),
    }
  );
}

/** [step, value] of a metric, in the order of steps. */
export function overSteps(
  measurements: readonly Measurement[],
  metric: string,
): [step: number, value: number][] {
  return measurements
    .filter((record) => record.metric === metric && record.params?.["step"] !== undefined)
    .map((record): [number, number] => [
      Number(record.params!["step"]),
      record.summary?.median ?? NaN,
    ])
    .sort(([a], [b]) => a - b);
}
