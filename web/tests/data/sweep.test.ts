import { expect, test } from "vitest";

import type { Measurement, Scalar } from "../../src/data/records";
import { isSweepPoint, medianOf, operations, sweepTitle, sweeps } from "../../src/data/sweep";

function point(metric: string, params: Record<string, Scalar>, value = 1): Measurement {
  return {
    kind: "measurement",
    name: "network.all_to_all",
    metric,
    unit: "B/s",
    subject: {},
    params,
    samples: [value],
  } as unknown as Measurement;
}

test("metrics of a size and operation share a row; other numbers of iterations make no other sweep", () => {
  const [sweep, ...others] = sweeps([
    point("bandwidth", { size: 1024, op: "put", iterations: 9 }),
    point("bandwidth", { size: 64, op: "put", iterations: 90 }),
    point("latency", { size: 64, op: "put", iterations: 90 }),
    point("bandwidth", { size: 64, op: "get", iterations: 90 }),
  ]);
  expect(others).toEqual([]);
  expect(sweep!.rows.map((row) => [row.op, row.size])).toEqual([
    ["put", 64],
    ["put", 1024],
    ["get", 64],
  ]);
  expect(Object.keys(sweep!.rows[0]!.metrics)).toEqual(["bandwidth", "latency"]);
});

test("other parameters make another sweep, whatever their order", () => {
  const result = sweeps([
    point("bandwidth", { size: 64, op: "put", inflight: 1, schedule: "shift" }),
    point("bandwidth", { schedule: "shift", inflight: 1, op: "put", size: 128 }),
    point("bandwidth", { size: 64, op: "put", inflight: 4, schedule: "shift" }),
  ]);
  expect(result.map((sweep) => sweep.rows.length)).toEqual([2, 1]);
  expect(sweepTitle(result[1]!)).toBe("network.all_to_all (4 in flight, shift)");
});

test("operations keep the order in which they were measured", () => {
  const [sweep] = sweeps(["send", "put", "get"].map((op) => point("bandwidth", { size: 1, op })));
  expect(operations(sweep!)).toEqual(["send", "put", "get"]);
});

test("a point of a sweep has a size and no single host as subject", () => {
  expect(isSweepPoint(point("bandwidth", { size: 64 }))).toBe(true);
  expect(isSweepPoint(point("bandwidth", {}))).toBe(false);
  expect(isSweepPoint({ ...point("bandwidth", { size: 64 }), subject: { host: "h1" } })).toBe(
    false,
  );
});

test("the median is the summary's, else the first sample, else undefined", () => {
  const measured = point("bandwidth", { size: 64 }, 3);
  expect(medianOf(measured)).toBe(3);
  expect(medianOf({ ...measured, summary: { median: 2 } } as unknown as Measurement)).toBe(2);
  expect(medianOf(undefined)).toBeUndefined();
});

test("a sweep without a value comes last, whatever was recorded first", () => {
  const leftOut: Measurement = {
    ...point("bandwidth", { size: 1, op: "send" }),
    samples: [],
    summary: null,
    status: "waived",
  };
  const [first, last] = sweeps([leftOut, point("bandwidth", { size: 2, op: "send", peers: 7 }, 3)]);
  expect([first!.rows[0]!.size, last!.rows[0]!.size]).toEqual([2, 1]);
});
