import { expect, test } from "vitest";

import { onePoint } from "../../src/data/onePoint";

const curve = (name: string, points: [number, number][], detail?: string) => ({
  name,
  detail,
  series: 0,
  points,
});

test("curves of one size are a bar each, with the size beside", () => {
  const point = onePoint([
    curve("put", [[1024, 9]], "p50"),
    curve("put", [[1024, 12]], "p99"),
    curve("get", []),
  ]);
  expect(point!.size).toBe(1024);
  expect(point!.bars.map(({ label, value }) => [label, value])).toEqual([
    ["put p50", 9],
    ["put p99", 12],
  ]);
});

test("curves of several sizes, also of one size each, and of none stay curves", () => {
  expect(onePoint([curve("put", [[1, 9]]), curve("get", [[2, 9]])])).toBeUndefined();
  expect(
    onePoint([
      curve("put", [
        [1, 9],
        [2, 9],
      ]),
    ]),
  ).toBeUndefined();
  expect(onePoint([curve("put", [])])).toBeUndefined();
});
