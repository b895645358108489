// Tests of the short names of boxes.

import { expect, test } from "vitest";

import { distinctParts, shortened } from "../../src/data/names";

test.each([
  [
    ["MF0;RA10:S1/L1/U1", "MF0;RA10:S1/L2/U1", "MF0;RA10:S2/L1/U1"],
    ["S1/L1", "S1/L2", "S2/L1"],
  ],
  [
    ["leaf1", "leaf2"],
    ["leaf1", "leaf2"],
  ],
  [["MF0;one"], ["MF0;one"]],
  [
    ["a b", "a b c"],
    ["b", "b c"],
  ],
])("%j are told apart by %j", (names, short) => {
  const parts = distinctParts(names);
  expect(names.map((name) => parts.get(name))).toEqual(short);
});

test("a long name keeps its end", () => {
  expect(shortened("spine-with-a-name-17", 9)).toBe("…-name-17");
  expect(shortened("leaf1", 9)).toBe("leaf1");
});
