// Tests of the rows of the table of capacities.

import { expect, test } from "vitest";

import { folded } from "../../src/data/model";
import type { Capacity } from "../../src/data/records";

function capacity(resource: string, value: number, changes: Partial<Capacity> = {}): Capacity {
  return {
    kind: "capacity",
    level: "host",
    resource,
    direction: "up",
    unit: "B/s",
    state: "measured",
    value,
    low: 0.99 * value,
    high: 1.01 * value,
    ...changes,
  };
}

test("similar hosts of a cabinet share a row", () => {
  const hosts = [100, 101, 102, 50].map((value, k) => capacity(`n${k + 1}`, value));
  const rows = folded(hosts);
  expect(rows.map(({ resource, value }) => [resource, value])).toEqual([
    ["n[1-3]", 101],
    ["n4", 50],
  ]);
  expect([rows[0]!.low, rows[0]!.high]).toEqual([99, 1.01 * 102]);
});

test("other directions, cabinets and levels have rows of their own", () => {
  const rows = [
    capacity("n1", 100),
    capacity("n1", 100, { direction: "down" }),
    capacity("n2", 100, { cabinet: "b" }),
    capacity("a", 100, { level: "cabinet" }),
    capacity("b", 100, { level: "cabinet" }),
  ];
  expect(folded(rows)).toEqual(rows);
});
