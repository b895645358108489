// Tests of folded host names.

import { expect, test } from "vitest";

import { fold } from "../../src/data/hosts";

test.each([
  [["h1", "h0", "h2", "x"], "h[0-2],x"],
  [["node00", "node01", "node09", "node10", "node11"], "node[00-01,09-11]"],
  [["n8", "n9", "n10"], "n[8-10]"],
  [["n08", "n9", "n10"], "n[08,10],n9"],
])("%j is %s", (names, text) => {
  expect(fold(names)).toBe(text);
});
