// Tests of pair matrices: their construction, medians and worst pairs.

import { expect, test } from "vitest";

import {
  MatrixBuilder,
  deviation,
  median,
  sideMedian,
  valueAt,
  worstPairs,
  type Matrix,
} from "../../src/data/matrix";
import type { Pairs } from "../../src/data/records";

function row(host: string, values: Record<string, number>, better = "higher"): Pairs {
  return {
    kind: "pairs",
    name: "network.all_to_all",
    metric: "bandwidth",
    unit: "B/s",
    better,
    subject: { host },
    peers: Object.keys(values),
    values: Object.values(values),
  } as unknown as Pairs;
}

function buildMatrix(rows: Pairs[], hosts: string[]): Matrix {
  const builder = new MatrixBuilder("key", rows[0]!);
  rows.forEach((record) => builder.add(record));
  return builder.build(hosts);
}

// h2 sends at half the rate of the others. Rows arrive in any order, peers too.
const SLOW_SENDER = [
  row("h2", { h1: 50, h0: 50 }),
  row("h0", { h1: 100, h2: 100 }),
  row("h1", { h2: 100, h0: 100 }),
];

test("rows and columns are in the order of the run's hosts", () => {
  const matrix = buildMatrix(SLOW_SENDER, ["h0", "h1", "h2"]);
  expect([matrix.rows, matrix.columns]).toEqual([
    ["h0", "h1", "h2"],
    ["h0", "h1", "h2"],
  ]);
  expect(valueAt(matrix, 2, 0)).toBe(50);
  expect(valueAt(matrix, 0, 2)).toBe(100);
  expect(valueAt(matrix, 1, 1)).toBeNaN();
  expect([matrix.measured, matrix.median]).toEqual([6, 100]);
});

test("hosts that the run does not name follow in natural order, adapters stay with their host", () => {
  const rows = [
    row("x10", { a: 1 }),
    row("x9", { a: 1 }),
    row("b:1", { a: 1 }),
    row("a", { b: 1 }),
  ];
  expect(buildMatrix(rows, ["a", "b"]).rows).toEqual(["a", "b:1", "x9", "x10"]);
});

test("half of the median rate deviates by -50 %, and so does twice the median latency", () => {
  const rates = buildMatrix(SLOW_SENDER, ["h0", "h1", "h2"]);
  expect(deviation(rates, 50)).toBeCloseTo(-0.5);
  expect(rates.worst).toBeCloseTo(-0.5);
  const times = buildMatrix(
    [row("h0", { h1: 1, h2: 2 }, "lower"), row("h1", { h0: 1, h2: 1 }, "lower")],
    ["h0", "h1", "h2"],
  );
  expect(deviation(times, 2)).toBeCloseTo(-0.5);
  expect(times.worst).toBeCloseTo(-0.5);
});

test("the worst pairs come first, for metrics of which higher or lower is better", () => {
  const rates = buildMatrix(
    [row("h0", { h1: 90, h2: 20 }), row("h1", { h0: 70, h2: 100 })],
    ["h0", "h1", "h2"],
  );
  expect(worstPairs(rates, 2).map((pair) => pair.value)).toEqual([20, 70]);
  expect(worstPairs(rates, 9)).toHaveLength(4);
  const times = buildMatrix([row("h0", { h1: 3, h2: 9 }, "lower")], ["h0", "h1", "h2"]);
  expect(worstPairs(times, 1)[0]).toMatchObject({
    row: 0,
    column: times.columns.indexOf("h2"),
    value: 9,
  });
});

test("a slow sender shows in its row alone", () => {
  const matrix = buildMatrix(SLOW_SENDER, ["h0", "h1", "h2"]);
  expect([0, 1, 2].map((index) => sideMedian(matrix, "row", index))).toEqual([100, 100, 50]);
  expect([0, 1].map((index) => sideMedian(matrix, "column", index))).toEqual([75, 75]);
});

test("a median ignores pairs that were not measured", () => {
  expect(median([NaN, 3, 1, 2])).toBe(2);
  expect(median([4, 1, 3, 2])).toBe(2.5);
  expect(median([NaN])).toBeNaN();
});
