// Tests of the data of a schedule's conflicts for the report.

import { expect, test } from "vitest";

import { isOfStep, overSteps, totals } from "../../src/data/fabric";
import type { Measurement, Scalar } from "../../src/data/records";

function figure(metric: string, value: number, params: Record<string, Scalar> = {}): Measurement {
  return {
    kind: "measurement",
    name: "fabric.conflicts",
    metric,
    unit: "1",
    params: { schedule: "shift", ranks: 45, ...params },
    summary: { n: 1, median: value },
  } as Measurement;
}

test("totals are the figures without a step", () => {
  const result = totals([
    figure("conflicts", 9, { step: 27 }),
    figure("conflicts_total", 81),
    figure("conflicts_share", 0.04),
    figure("rounds", 62),
    figure("rounds_bound", 45),
  ]);
  expect(result).toMatchObject({
    schedule: "shift",
    ranks: 45,
    conflicts: 81,
    lockstepRounds: 62,
    roundsWithoutConflict: 45,
  });
});

test("a run without a schedule has no totals", () => {
  expect(totals([figure("slow_cables", 0)])).toBeUndefined();
});

test("the curve is in the order of steps", () => {
  const result = overSteps(
    [2, 0, 1].map((step) => figure("conflicts", step * 10, { step })),
    "conflicts",
  );
  expect(result).toEqual([
    [0, 0],
    [1, 10],
    [2, 20],
  ]);
});

test("points of the curve are distinguished from totals", () => {
  expect(isOfStep(figure("conflicts", 9, { step: 0 }))).toBe(true);
  expect(isOfStep(figure("conflicts_total", 81))).toBe(false);
});
