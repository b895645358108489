// Tests of the formatting of values.

import { describe, expect, test } from "vitest";

import cases from "../../../tests/fixtures/quantities.json";
import {
  NONE,
  digits,
  duration,
  exactSize,
  moment,
  formatParameters,
  percent,
  quantity,
} from "../../src/data/format";

test.each([
  [0, "0"],
  [12.345, "12.3"],
  [0.012345, "0.0123"],
  [1234.5, "1230"],
  [9.996, "10"],
  [-0.5, "-0.5"],
])("three significant digits of %d, never an exponent: %s", (value, text) => {
  expect(digits(value)).toBe(text);
});

// The same cases that tests/python/records/test_units.py reads: terminal and report agree.
test.each(cases.sizes as [number, string][])("the size %d is exactly %s", (value, text) => {
  expect(exactSize(value)).toBe(text);
});

describe("a quantity", () => {
  test.each(cases.quantities as [number, string, string][])(
    "%d %s reads %s",
    (value, unit, text) => {
      expect(quantity(value, unit)).toBe(text);
    },
  );

  test.each([null, undefined, NaN, Infinity])("of %s is a dash", (value) => {
    expect(quantity(value, "B/s")).toBe(NONE);
  });
});

test.each([
  [-0.49, "−49 %"],
  [0.05, "+5.0 %"],
  [0, "±0.0 %"],
  [-0.0001, "±0.0 %"],
  [1.5, "+150 %"],
])("the difference %d is %s", (value, text) => {
  expect(percent(value)).toBe(text);
});

test("a share has no sign", () => {
  expect(percent(0.5, false)).toBe("50 %");
  expect(percent(9.99)).toBe("+999 %");
  expect(percent(999999)).toBe("> +1000 %");
  expect(percent(undefined)).toBe(NONE);
});

test("a moment is in UTC, and text that is no moment stays as it is", () => {
  expect(moment("2024-05-06T09:08:07.6+02:00")).toBe("2024-05-06 07:08:07 UTC");
  expect(moment("yesterday")).toBe("yesterday");
});

test.each([
  ["2024-05-06T07:08:09Z", "59 s"],
  ["2024-05-06T07:08:22Z", "1 min 12 s"],
  ["2024-05-06T09:12:10Z", "2 h 5 min"],
  ["never", NONE],
])("from 07:07:10 to %s are %s", (end, text) => {
  expect(duration("2024-05-06T07:07:10Z", end)).toBe(text);
});

test("parameters have their names, except those that their values explain", () => {
  expect(formatParameters({ size: 1 << 20, op: "send", inflight: 1 })).toBe(
    "1 MiB, send, 1 in flight",
  );
  expect(formatParameters({ threads: 4, cores: 1 })).toBe("4 threads, 1 core");
  expect(formatParameters({ sender_late: 0.002, verify: false })).toBe(
    "sender late 2 ms, not verify",
  );
  expect(formatParameters({})).toBe("");
});

test("a margin beyond ten times the required value is shown as a bound", () => {
  expect(percent(5891)).toBe("> +1000 %");
  expect(percent(-5891)).toBe("< −1000 %");
});

test("parameters that say nothing are left out, and names are words", () => {
  const params = { operation: "read", stores: "none", line_reads: "none", memory_node: 0 };
  expect(formatParameters(params)).toBe("read, memory node 0");
});
