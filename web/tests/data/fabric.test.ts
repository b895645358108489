import { expect, test } from "vitest";

import { isOfSwitch, levels, overSteps, sharedBySteps, totals } from "../../src/data/fabric";
import type { Context, Flows, Measurement, Scalar } from "../../src/data/records";

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

function box(name: string, level: number, hosts: number, above: string): Context {
  const facts = { "fabric.level": level, "fabric.hosts_on_switch": hosts, "fabric.above": above };
  return { kind: "context", subject: { device: name }, facts } as Context;
}

test("totals are the figures without a step", () => {
  const found = totals([
    figure("conflicts", 9, { step: 27 }),
    figure("conflicts_total", 81),
    figure("conflicts_share", 0.04),
    figure("rounds", 62),
    figure("rounds_bound", 45),
  ]);
  expect(found).toMatchObject({
    schedule: "shift",
    ranks: 45,
    conflicts: 81,
    rounds: 62,
    bound: 45,
  });
});

test("a run without a schedule has no totals", () => {
  expect(totals([figure("slow_cables", 0)])).toBeUndefined();
});

test("the curve is in the order of steps", () => {
  const found = overSteps(
    [2, 0, 1].map((step) => figure("conflicts", step * 10, { step })),
    "conflicts",
  );
  expect(found).toEqual([
    [0, 0],
    [1, 10],
    [2, 20],
  ]);
});

test("switches stand in the row of their level, whatever their names hold", () => {
  const rows = levels([box("spine 0", 1, 0, ""), box("leaf[0]", 0, 18, "spine 0\tspine 1")]);
  expect(rows.map((row) => row.map(({ name }) => name))).toEqual([["leaf[0]"], ["spine 0"]]);
  expect(rows[0]![0]!.above).toEqual(["spine 0", "spine 1"]);
});

test("a switch without a path to a host leaves no picture, and no endless row", () => {
  expect(levels([box("lost", 2 ** 31 - 1, 0, "")])).toEqual([]);
});

test("facts of hosts are no switches", () => {
  expect(isOfSwitch({ kind: "context", facts: { "cpu.model": "x" } } as Context)).toBe(false);
});

test("shared links are found by their step, with their pairs", () => {
  const flows = {
    kind: "flows",
    name: "fabric.conflicts",
    subject: { device: "leaf1[20] -> spine1[2]" },
    params: { step: 28, load: 2, from: "leaf1", to: "spine1" },
    sources: ["n20", "n29"],
    targets: ["n37", "n1"],
  } as unknown as Flows;
  const [link] = sharedBySteps([flows]).get(28)!;
  expect(link).toMatchObject({ from: "leaf1", to: "spine1", load: 2 });
  expect(link!.pairs).toEqual([
    ["n20", "n37"],
    ["n29", "n1"],
  ]);
});
