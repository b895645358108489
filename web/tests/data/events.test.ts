// Tests of the data of event building for the report.

import { expect, test } from "vitest";

import { buildings, searchOf } from "../../src/data/events";
import type { Finding, Measurement, Scalar } from "../../src/data/records";

let next = 0;

function figure(
  name: string,
  metric: string,
  value: number,
  params: Record<string, Scalar> = {},
  host?: string,
): Measurement {
  next += 1;
  return {
    kind: "measurement",
    id: next,
    name,
    metric,
    unit: "B/s",
    subject: host ? { host } : {},
    params:
      name === "events.slices"
        ? params
        : { protocol: "push", schedule: "shift", fragment: 524288, ...params },
    summary: { n: 1, median: value },
  } as Measurement;
}

const slice = (end: number, rate: number) =>
  figure("events.slices", "throughput", rate, { t: end - 1, span: 1 });
const total = () => figure("events.build", "events_built", 100);

test("slices are sorted by time", () => {
  const [building] = buildings([slice(2, 20), slice(1, 10), slice(3, 30), total()], []);
  expect(building!.rates).toEqual([
    [1, 10],
    [2, 20],
    [3, 30],
  ]);
  expect(building!.label).toBe("push, shift, 512 KiB");
});

test("packets that ranks sent again are added up", () => {
  const resent = [1, 2, 4].map((count, rank) =>
    figure("events.build", "packets_resent", count, {}, `h${rank}`),
  );
  expect(buildings([slice(1, 10), total(), ...resent], [])[0]!.ledger).toEqual([
    { name: "events built", count: 100 },
    { name: "packets sent again", count: 7 },
  ]);
});

test("a dip lasts from the begin of its first slice to the end of its last", () => {
  const records = [slice(1, 10), slice(2, 10), slice(3, 2), slice(4, 2), slice(5, 10), total()];
  const finding = {
    rule: "event_dip",
    subject: { host: "h3" },
    evidence: [records[2]!.id, records[3]!.id],
  } as Finding;
  expect(buildings(records, [finding])[0]!.dips).toEqual([{ from: 2, to: 4, host: "h3" }]);
});

test("a dip in the first slice begins at the start", () => {
  const records = [slice(1, 2), slice(2, 10)];
  const finding = { rule: "event_dip", evidence: [records[0]!.id] } as Finding;
  expect(buildings(records, [finding])[0]!.dips).toEqual([{ from: 0, to: 1, host: "" }]);
});

test("records with other parameters make another building; records of ranks and deaths do not", () => {
  const result = buildings(
    [
      slice(1, 10),
      figure("events.build", "resume", 0.1, { lost: "h3" }),
      slice(2, 10),
      total(),
      figure("events.build", "rank_throughput", 5, { direction: "sent" }, "h1"),
      slice(1, 20),
      figure("events.build", "events_built", 50, { schedule: "random" }),
    ],
    [],
  );
  expect(result.map(({ label }) => label)).toEqual([
    "push, shift, 512 KiB",
    "push, random, 512 KiB",
  ]);
  expect(result[0]!.ledger).toEqual([{ name: "events built", count: 100 }]);
  expect(result.map(({ rates }) => rates.length)).toEqual([2, 1]);
});

test("a death lies in the slice that follows, and slices that were left out are counted", () => {
  const records = [
    slice(1, 10),
    slice(7, 10),
    figure("events.build", "resume", 0.1, { lost: "h3" }),
    slice(9, 10),
    figure("events.slices", "throughput", 10, { t: 9, span: 0.3 }), // the last one
    total(),
  ];
  const building = buildings(records, [])[0]!;
  expect(building.deaths).toEqual([{ at: 7, to: 9, host: "h3", returned: false }]);
  expect([building.rates.length, building.slices]).toEqual([4, 10]);
});

test("a host that came back was away until it took part again", () => {
  const records = [
    slice(1, 10),
    figure("events.build", "resume", 0.1, { lost: "h3" }),
    slice(2, 10),
    slice(3, 10),
    figure("events.build", "return", 1.9, { lost: "h3" }),
    slice(4, 10),
    total(),
  ];
  const result = buildings(records, []);
  expect(result[0]!.deaths).toEqual([{ at: 1, to: 3, host: "h3", returned: true }]);
  expect(result.map(({ rates }) => rates.length)).toEqual([4]);
});

test("slices of an interrupted run are shown", () => {
  expect(buildings([slice(1, 10), slice(2, 10)], [])[0]!.rates).toHaveLength(2);
});

test("waived counts are not in the ledger", () => {
  const waived = {
    ...figure("events.build", "fragments_corrupt", 0),
    status: "waived",
  } as Measurement;
  const result = buildings([slice(1, 10), waived], []);
  expect(result[0]!.ledger).toEqual([]);
});

test("a search has its points best first and the most important parameter first", () => {
  const searchPoint = (credits: number, schedule: string, value: number) =>
    ({
      kind: "measurement",
      name: "events.tune",
      metric: "throughput",
      unit: "B/s",
      params: { credits, schedule },
      summary: { n: 2, median: value },
    }) as Measurement;
  const importanceOf = (parameter: string, value: number) =>
    ({
      kind: "measurement",
      name: "events.tune",
      metric: "importance",
      unit: "1",
      params: { parameter },
      summary: { n: 1, median: value },
    }) as Measurement;
  const search = searchOf([
    searchPoint(8, "shift", 30),
    searchPoint(2, "shift", 100),
    searchPoint(2, "random", 80),
    importanceOf("credits", 0.2),
    importanceOf("schedule", 0.8),
  ])!;
  expect(search.points.map(({ value }) => value)).toEqual([100, 80, 30]);
  expect(search.parameters.map(({ name }) => name)).toEqual(["schedule", "credits"]);
  expect(search.parameters[1]!.bars).toEqual({
    categories: ["2", "8"],
    series: [
      { name: "best", values: [100, 30] },
      { name: "median", values: [90, 30] },
    ],
  });
});

test("a run without a search has none", () => {
  expect(searchOf([slice(1, 10)])).toBeUndefined();
});
