// Tests of a fabric's plan: destinations and loads of a schedule's steps, and the items of the picture.

import { expect, test } from "vitest";

import { viewOf } from "../../src/data/fabricView";
import { crossedLinks, destinations, loadsOf, planOf, type Plan } from "../../src/data/plan";

const FIRST_CODE = 35; // as in data/plan.ts
const row = (...ports: number[]) => String.fromCharCode(...ports.map((port) => port + FIRST_CODE));

/** Two leaf switches of two hosts, one spine, a cable from each leaf: hosts a b on leaf0, c d on leaf1. */
function smallPlan(changes: Partial<Plan> = {}): Plan {
  return planOf({
    hosts: ["a", "b", "c", "d"],
    host_switches: [0, 0, 1, 1],
    switches: ["leaf0", "leaf1", "spine"],
    levels: [0, 0, 1],
    groups: [0, 1, 2],
    links: [
      [0, 2, 1, 2],
      [3, 1, 3, 2],
      [2, 0, 2, 1],
      [1, 3, 2, 3],
    ],
    tables: [row(1, 2, 3, 3), row(3, 3, 1, 2), row(1, 1, 2, 2)],
    schedule: "shift",
    steps: [],
    ...changes,
  });
}

test("in step k of a shift each rank sends to the k-th rank before it", () => {
  expect([...destinations(smallPlan(), 1)]).toEqual([3, 0, 1, 2]);
  expect([...destinations(smallPlan(), 0)]).toEqual([0, 1, 2, 3]);
});

test("other schedules: xor by its formula, the rest by their rows", () => {
  expect([...destinations(smallPlan({ schedule: "xor" }), 2)]).toEqual([2, 3, 0, 1]);
  const listed = smallPlan({ schedule: "mine", steps: [row(2, 1, 0, 0)] });
  expect([...destinations(listed, 0)]).toEqual([1, 0, -1, -1]);
});

test("every flow loads each link of its route", () => {
  expect([...loadsOf(smallPlan(), 2)]).toEqual([2, 2, 2, 2]); // a b to c d and back
  expect([...loadsOf(smallPlan(), 1)]).toEqual([1, 1, 1, 1]); // a to d, c to b
  expect([...loadsOf(smallPlan(), 0)]).toEqual([0, 0, 0, 0]);
});

test("the pairs of a link", () => {
  const plan = smallPlan();
  const [first] = crossedLinks(plan, 2, loadsOf(plan, 2), 2, new Set([0]));
  expect(first).toMatchObject({ name: "leaf0[3] -> spine[1]", load: 2 });
  expect(first!.pairs).toEqual([
    ["a", "c"],
    ["b", "d"],
  ]);
});

test("a rank without a host neither sends nor receives, and the walk of a routing loop ends", () => {
  expect([...loadsOf(smallPlan({ host_switches: [0, 0, -1, 1] }), 2)]).toEqual([1, 1, 1, 1]);
  const loop = smallPlan({ tables: [row(1, 2, 3, 3), row(3, 3, 1, 2), row(1, 1, 1, 1)] });
  expect(loadsOf(loop, 2)[0]).toBeGreaterThan(2);
});

test("a small fabric is shown by its switches, links of both directions as one line", () => {
  const view = viewOf(smallPlan(), null);
  expect(view.rows.map((items) => items.map((k) => view.items[k]!.name))).toEqual([
    ["leaf0", "leaf1"],
    ["spine"],
  ]);
  expect(view.items[0]!.hosts).toBe(2);
  expect(view.lines.map(({ links }) => links)).toEqual([
    [0, 1],
    [2, 3],
  ]);
});

test("a large fabric is shown by its parts, and an opened part by its switches", () => {
  const pods = 40;
  const leaves = Array.from({ length: pods * 4 }, (_, k) => k);
  const spine = leaves.length;
  const plan = smallPlan({
    host_switches: [0, 1, 2, 159],
    switches: [...leaves.map((k) => `leaf${k}`), "spine"],
    levels: [...leaves.map(() => 0), 1],
    groups: [...leaves.map((k) => Math.floor(k / 4)), pods],
    links: [leaves, leaves.map(() => 1), leaves.map(() => spine), leaves.map((k) => k + 1)],
  });
  const whole = viewOf(plan, null);
  expect(whole.items.length).toBe(pods + 1);
  expect(whole.items[0]).toMatchObject({ name: "leaf0 … leaf3", hosts: 3 });
  expect(whole.lines.length).toBe(pods);
  const part = viewOf(plan, whole.items[1]!.switches);
  expect(part.items.map(({ name }) => name)).toEqual(["leaf4", "leaf5", "leaf6", "leaf7", "spine"]);
  expect(part.lines.length).toBe(4);
});

test("neighbours in a long row are joined", () => {
  const leaves = Array.from({ length: 500 }, (_, k) => k);
  const plan = smallPlan({
    host_switches: [0, 1, 2, 3],
    switches: [...leaves.map((k) => `leaf${k}`), "spine"],
    levels: [...leaves.map(() => 0), 1],
    groups: leaves.concat(500),
    links: [leaves, leaves.map(() => 1), leaves.map(() => 500), leaves.map((k) => k + 1)],
  });
  const view = viewOf(plan, null);
  expect(view.rows[0]!.length).toBeLessThanOrEqual(72);
  expect(view.rows[0]!.flatMap((k) => view.items[k]!.switches)).toEqual(leaves);
});

test("a switch without a route to a host is not shown", () => {
  expect(viewOf(smallPlan({ levels: [0, 0, -1] }), null).items.length).toBe(2);
});
