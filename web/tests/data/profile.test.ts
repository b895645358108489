// Tests of the model of a profile.

import { describe, expect, test } from "vitest";

import type { Column, Groups, Metric, Tree } from "../../src/data/profileTypes";
import { decode, ProfileModel } from "../../src/data/profile";

const METRICS: Metric[] = [
  { key: "bytes", label: "allocated", unit: "B", fold: "sum" },
  { key: "count", label: "allocations", unit: "1", fold: "sum" },
  { key: "mean", label: "mean", unit: "B", fold: "mean", dividend: "bytes", divisor: "count" },
];

function column(type: Column["type"], values: number[]): Column {
  const Type = { u1: Uint8Array, i4: Int32Array, f8: Float64Array }[type as "u1" | "i4" | "f8"];
  const bytes = new Uint8Array(new Type(values).buffer);
  return { type, data: btoa(String.fromCharCode(...bytes)) };
}

// main calls a and b; both end in malloc, for which they are the sites.
function tree(): Tree {
  const groups = (exclusive: number[], inclusive: number[]): Groups => ({
    rows: 4,
    location: column("i4", [0, 1, 2, 3]),
    exclusive: { bytes: column("f8", exclusive), count: column("u1", [0, 1, 2, 0]) },
    inclusive: { bytes: column("f8", inclusive), count: column("u1", [3, 1, 2, 3]) },
  });
  const names = ["main", "a", "b", "malloc"];
  return {
    locations: {
      function: names,
      file: names.map((name) => `/src/${name}.c`),
      line: [1, 2, 3, 4],
      module: names.map(() => "/bin/p"),
      inlined: names.map(() => false),
      is_allocator_frame: [false, false, false, true],
      function_id: [0, 1, 2, 3],
      line_id: [0, 1, 2, 3],
    },
    nodes: {
      rows: 5,
      parent: column("i4", [-1, 0, 0, 1, 2]),
      location: column("u1", [0, 1, 2, 3, 3]),
      figures: {
        bytes: column("f8", [2 ** 40 + 7, 7, 2 ** 40, 7, 2 ** 40]),
        count: column("u1", [3, 1, 2, 1, 2]),
      },
    },
    stacks: {
      rows: 2,
      node: column("u1", [3, 4]),
      site: column("u1", [1, 2]),
      figures: { bytes: column("f8", [7, 2 ** 40]), count: column("u1", [1, 2]) },
    },
    lines: groups([0, 7, 2 ** 40, 0], [2 ** 40 + 7, 7, 2 ** 40, 2 ** 40 + 7]),
    functions: groups([0, 7, 2 ** 40, 0], [2 ** 40 + 7, 7, 2 ** 40, 2 ** 40 + 7]),
  };
}

test("columns are decoded exactly", () => {
  expect([...decode(column("f8", [0, 2 ** 40, 3]), 3)]).toEqual([0, 2 ** 40, 3]);
  expect([...decode(column("i4", [-1, 5]), 2)]).toEqual([-1, 5]);
  expect([...decode({ type: "zero", data: "" }, 2)]).toEqual([0, 0]);
});

describe("a profile", () => {
  const model = new ProfileModel(tree(), {}, [], METRICS);
  const bytes = model.metric("bytes");

  test("has its functions by exclusive figure, with inclusive figures", () => {
    expect(model.entries(bytes, "function").map((entry) => entry.location)).toEqual([2, 1, 0, 3]);
    expect(model.entries(bytes, "function")[0]).toEqual({
      location: 2,
      exclusive: 2 ** 40,
      inclusive: 2 ** 40,
    });
    expect(model.total(bytes)).toBe(2 ** 40 + 7);
  });

  test("has stacks through a function, and those that end in it", () => {
    const nodes = (through: number | undefined, exclusive: boolean) =>
      model.stacks(bytes, through, "function", exclusive).map((stack) => stack.node);
    expect(nodes(undefined, false)).toEqual([4, 3]);
    expect(nodes(0, false)).toEqual([4, 3]);
    expect(nodes(1, false)).toEqual([3]);
    expect(nodes(0, true)).toEqual([]);
    expect(nodes(2, true)).toEqual([4]);
  });

  test("names sites, stacks and callees", () => {
    expect(model.site(4)).toBe(2);
    expect(model.stack(4)).toEqual([0, 2, 3]);
    expect(model.roots).toEqual([0]);
    expect(model.children(0)).toEqual([1, 2]);
    expect(model.source(2)).toBe("b.c:3");
  });

  test("divides dividend by divisor for a mean", () => {
    const entries = model.entries(model.metric("mean"), "line");
    expect(entries.find((entry) => entry.location === 2)!.exclusive).toBe(2 ** 39);
  });
});
