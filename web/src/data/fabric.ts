// The conflicts of a schedule on a fabric: totals, and the curve over steps. The records are those of
// python/assay/measure/fabric.py.

import type { Measurement } from "./records";

interface Totals {
  schedule: string;
  ranks: number;
  conflicts: number;
  conflictsOfPair: number; // conflicts over ranks squared; above 1 where flows collide on several links
  lockstepRounds: number; // if all ranks start each step together: the sum over steps of the fullest link's load
  roundsWithoutConflict: number; // the lower bound of lockstepRounds: one for each step
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
  const first = measurements.find((record) => record.metric === "conflicts_total");
  return (
    first && {
      schedule: String(first.params?.["schedule"]),
      ranks: Number(first.params?.["ranks"]),
      conflicts: value("conflicts_total"),
      conflictsOfPair: value("conflicts_share"),
      lockstepRounds: value("rounds"),
      roundsWithoutConflict: value("rounds_bound"),
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
