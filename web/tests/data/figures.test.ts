// The matrix of memory bandwidth has cores whose node has no memory, and cores of no node.

import { expect, test } from "vitest";

import { numaMatrices } from "../../src/data/figures";
import type { Measurement, Scalar } from "../../src/data/records";

function bandwidth(
  numa: number | undefined,
  memory: Scalar,
  median: number,
  remote = true,
): Measurement {
  return {
    kind: "measurement",
    name: "node.memory",
    metric: "bandwidth",
    unit: "B/s",
    subject: { host: "n1", ...(numa === undefined ? {} : { numa }) },
    params: {
      operation: "read",
      threads: 4,
      memory_node: memory,
      ...(remote ? { locality: "remote" } : {}),
    },
    summary: { n: 3, median },
  } as Measurement;
}

test("remote bandwidth is in one matrix with the nodes' own", () => {
  const [matrix, ...others] = numaMatrices([
    bandwidth(0, 0, 9, false),
    bandwidth(2, 0, 4),
    bandwidth(undefined, 0, 3),
    bandwidth(undefined, "nearest", 12, false),
  ]);
  expect(others).toEqual([]);
  expect(matrix!.rows).toEqual(["cores 0", "cores 2", "cores of no node"]);
  expect([...matrix!.values]).toEqual([9, 4, 3]);
});
