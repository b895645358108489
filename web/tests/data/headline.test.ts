// The tiles of the first screen for runs of storage benchmarks.

import { expect, test } from "vitest";

import { headline } from "../../src/data/headline";
import type { Measurement, Scalar } from "../../src/data/records";

function ior(params: Record<string, Scalar>, median: number): Measurement {
  return {
    kind: "measurement",
    name: "storage.ior",
    metric: "bandwidth",
    unit: "B/s",
    params: { mpi: "MPICH", ranks: 4, transfer: 1 << 20, ...params },
    summary: { n: 1, median },
  } as Measurement;
}

const STOCK = ior({ io: "stock", op: "write", fsync: true }, 2e9);
const FAST = ior({ io: "accelerated", op: "write", fsync: true }, 9e9);

test("the best rates of writing and reading have tiles with their conditions", () => {
  const read = ior({ io: "stock", op: "read", data: "own" }, 5e9);
  const [write, reading] = headline([STOCK, FAST, read]);
  expect(write).toEqual({
    name: "Write",
    value: "9 GB/s",
    note: "median of the rounds, accelerated, transfers of 1 MiB, 4 ranks",
  });
  expect(reading!.value).toBe("5 GB/s");
  expect(reading!.note).toContain("own data");
});

test("whether the written bytes were durable is told with the level", () => {
  const durable = (records: Measurement[], options = {}) => headline(records, options).at(-1)!;
  expect(durable([FAST])).toMatchObject({ value: "yes" });
  expect(durable([FAST]).note).toContain("level file");
  expect(durable([FAST], { until: "memory" })).toMatchObject({ value: "no" });
  expect(durable([FAST], { until: "memory" }).note).toContain("level memory");
  expect(durable([STOCK], { until: "memory" })).toMatchObject({ value: "yes" });
  expect(durable([ior({ io: "stock", op: "write", fsync: false }, 2e9)])).toMatchObject({
    value: "no",
  });
  expect(durable([ior({ io: "stock", op: "write" }, 2e9)])).toMatchObject({ value: "not known" });
});

test("a run that only reads says nothing of durability", () => {
  expect(headline([ior({ io: "stock", op: "read" }, 5e9)]).map(({ name }) => name)).toEqual([
    "Read",
  ]);
});
