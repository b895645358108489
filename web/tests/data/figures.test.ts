// The matrix of memory bandwidth has cores whose node has no memory, and cores of no node. Bars of slow hosts are marked.

import { expect, test } from "vitest";

import { barGroups, numaMatrices } from "../../src/data/figures";
import type { Finding, Measurement, Scalar, Verdict } from "../../src/data/records";

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

function rate(id: number, host: string, median: number): Measurement {
  return {
    kind: "measurement",
    id,
    name: "node.memory",
    metric: "bandwidth",
    unit: "B/s",
    better: "higher",
    subject: { host },
    params: { operation: "read" },
    summary: { n: 3, median },
  } as Measurement;
}

const HOSTS = [rate(1, "n1", 9), rate(2, "n2", 4), rate(3, "n3", 9)];
const slow = (verdicts: Verdict[], findings: Finding[]) =>
  barGroups(HOSTS, verdicts, findings)[0]!.bars.map(({ isSlow }) => isSlow);

test("the bar of a record that a finding names as slow is marked, one that is only advice is not", () => {
  const finding = { kind: "finding", rule: "slow_node", cause: "", effect: -0.5, evidence: [2] };
  expect(slow([], [{ ...finding, severity: "fault" } as Finding])).toEqual([false, true, false]);
  expect(slow([], [{ ...finding, severity: "advice" } as Finding])).toEqual([false, false, false]);
  expect(slow([], [])).toEqual([false, false, false]);
});

test("a bar that misses its limit is marked", () => {
  const verdict = { outcome: "FAIL", required: 5, unit: "B/s", evidence: [2] };
  expect(slow([verdict as unknown as Verdict], [])).toEqual([false, true, false]);
});
