// The data of event building for the report: throughput over time with its dips, the ledger of events and fragments,
// and the points of a search for parameters. Records with the same parameters are grouped, as in
// python/assay/events/figures.py.

import { exactSize } from "./format";
import { median } from "./matrix";
import type { Finding, Measurement, Scalar } from "./records";
import type { Bars } from "./storage";

const BUILD = "events.build";
const SLICES = "events.slices";
const TUNE = "events.tune";
// Parameters that differ between records of one building.
const RECORD_PARAMS = ["direction", "lost", "returned", "stayed", "steps", "waiting_for"];
// The engine writes these between slices of the same building.
const BETWEEN_SLICES = new Set(["resume", "return", "replan"]);
const LEDGER: Record<string, string> = {
  events_built: "events built",
  events_incomplete: "events incomplete",
  events_reassigned: "events reassigned",
  fragments_built: "fragments built",
  fragments_partial: "fragments of incomplete events",
  fragments_lost: "fragments lost",
  fragments_corrupt: "fragments corrupt",
  fragments_duplicate: "fragments twice",
  fragments_unaccounted: "fragments unaccounted",
  packets_resent: "packets sent again",
};

type Params = Record<string, Scalar>;
export type Point = [t: number, value: number];

/** A period of slow building, and the host that caused it ("" if all hosts were equally slow). */
interface Dip {
  from: number; // s
  to: number;
  host: string;
}

/** The loss of a host, in the slice of time that follows `at`. */
interface Death {
  at: number; // s
  to: number; // the end of the next slice; of a host that came back, of that in which it took part again
  host: string;
  returned: boolean;
}

export interface Building {
  key: string;
  label: string;
  slices: number; // of the run: the record of a long one has all, the page a part
  rates: Point[]; // B/s of all, by the end of each slice in s
  slowest: Point[]; // B/s of the rank that received the least
  latency: Point[]; // median, s
  dips: Dip[];
  deaths: Death[];
  ledger: { name: string; count: number }[];
}

export function isOfEvents(record: Measurement): boolean {
  return record.name.startsWith("events.");
}

/** The buildings of a run, one for each set of parameters, in the order of running. Slices have no parameters: they
 * belong to the building whose other records follow them. */
export function buildings(
  measurements: readonly Measurement[],
  findings: readonly Finding[],
): Building[] {
  const byParams = new Map<string, Building>();
  const spans = new Map<number, Span>(); // of the records of slices, by id
  let pending = emptyBuilding("", {});
  let waiting: Span[] = [];
  for (const record of measurements) {
    const value = record.summary?.median;
    if (value === undefined || (record.status ?? "ok") !== "ok") continue;
    if (record.name === SLICES) {
      const from = Number(record.params?.["t"]);
      const span = { building: pending, from, to: from + Number(record.params?.["span"]) };
      spans.set(record.id ?? 0, span);
      waiting.push(span);
      for (const death of pending.deaths) if (death.to === death.at) death.to = span.to;
      pointsOfMetric(pending, record.metric)?.push([span.to, value]);
    } else if (record.name === BUILD) {
      const key = keyOf(record);
      const building = byParams.get(key) ?? emptyBuilding(key, record.params ?? {});
      byParams.set(key, building);
      addToLedger(building.ledger, record.metric, value);
      if (record.metric === "resume") {
        const at = waiting.at(-1)?.to ?? 0;
        const host = String(record.params?.["lost"] ?? "");
        pending.deaths.push({ at, to: at, host, returned: false });
      }
      if (record.metric === "return") {
        const host = String(record.params?.["lost"] ?? "");
        const death = pending.deaths.findLast((death) => death.host === host);
        if (death) [death.to, death.returned] = [waiting.at(-1)?.to ?? death.to, true];
      }
      if (!BETWEEN_SLICES.has(record.metric) && waiting.length > 0) {
        for (const span of waiting) span.building = building;
        building.rates.push(...pending.rates);
        building.slowest.push(...pending.slowest);
        building.latency.push(...pending.latency);
        building.deaths.push(...pending.deaths);
        [pending, waiting] = [emptyBuilding("", {}), []];
      }
    }
  }
  if (waiting.length > 0) byParams.set("", pending);
  for (const building of byParams.values()) building.slices = sliceCount(building, spans);
  for (const building of byParams.values())
    for (const points of [building.rates, building.slowest, building.latency])
      points.sort((a, b) => a[0] - b[0]);
  for (const finding of findings) if (finding.rule === "event_dip") addDip(finding, spans);
  return [...byParams.values()].filter(({ rates, ledger }) => rates.length + ledger.length > 0);
}

/** The ledger has one count of each name; packets are counted for each rank. */
function addToLedger(ledger: Building["ledger"], metric: string, count: number): void {
  const name = LEDGER[metric];
  const known = ledger.find((entry) => entry.name === name);
  if (known) known.count += count;
  else if (name) ledger.push({ name, count });
}

interface Span {
  building: Building;
  from: number; // s
  to: number;
}

/** The slices from the start of a building to its end. All are equally long, but for the last one. */
function sliceCount(building: Building, spans: Map<number, Span>): number {
  let [end, length] = [0, 0];
  for (const span of spans.values())
    if (span.building === building)
      [end, length] = [Math.max(end, span.to), Math.max(length, span.to - span.from)];
  return length > 0 ? Math.ceil(end / length - 0.01) : 0;
}

const emptyBuilding = (key: string, params: Params): Building => ({
  key,
  label: labelOf(params),
  slices: 0,
  rates: [],
  slowest: [],
  latency: [],
  dips: [],
  deaths: [],
  ledger: [],
});

function pointsOfMetric(building: Building, metric: string): Point[] | undefined {
  if (metric === "throughput") return building.rates;
  if (metric === "rank_throughput") return building.slowest;
  return metric === "latency" ? building.latency : undefined;
}

function addDip(finding: Finding, spans: Map<number, Span>) {
  const cited = (finding.evidence ?? []).flatMap((id) => spans.get(id) ?? []);
  if (cited.length === 0) return;
  cited[0]!.building.dips.push({
    from: Math.min(...cited.map(({ from }) => from)),
    to: Math.max(...cited.map(({ to }) => to)),
    host: finding.subject?.host ?? "",
  });
}

function keyOf(record: Measurement): string {
  const params = Object.entries(record.params ?? {}).filter(
    ([name]) => !RECORD_PARAMS.includes(name),
  );
  return JSON.stringify(params.sort());
}

function labelOf(params: Params): string {
  const parts = [params["protocol"], params["schedule"]].filter((part) => part !== undefined);
  if (typeof params["fragment"] === "number") parts.push(exactSize(params["fragment"]));
  for (const name of ["credits", "parallel"])
    if (params[name] !== undefined) parts.push(`${params[name]} ${name}`);
  return parts.join(", ");
}

/** A point of a search: its parameters, its figure, and how often it was measured. */
export interface SearchPoint {
  params: Params;
  value: number; // B/s
  times: number;
}

/** The result of a search: its points, the best first, and for each parameter the figures at each of its values. */
export interface Search {
  points: SearchPoint[];
  parameters: { name: string; importance: number | undefined; bars: Bars }[];
}

export function searchOf(measurements: readonly Measurement[]): Search | undefined {
  const records = measurements.filter((record) => record.name === TUNE && record.summary);
  const points = records
    .filter(({ metric }) => metric === "throughput")
    .map((record) => ({
      params: record.params ?? {},
      value: record.summary!.median,
      times: record.summary!.n,
    }))
    .sort((a, b) => b.value - a.value);
  if (points.length === 0) return undefined;
  const importance = new Map(
    records
      .filter(({ metric }) => metric === "importance")
      .map((record) => [String(record.params?.["parameter"]), record.summary!.median]),
  );
  const parameters = Object.keys(points[0]!.params)
    .map((name) => ({ name, importance: importance.get(name), bars: barsOf(points, name) }))
    .filter(({ bars }) => bars.categories.length > 1)
    .sort((a, b) => (b.importance ?? 0) - (a.importance ?? 0));
  return { points, parameters };
}

/** The best and the median figure at each value of a parameter. */
function barsOf(points: readonly SearchPoint[], name: string): Bars {
  const values = [...new Set(points.map(({ params }) => params[name]!))];
  if (values.every((value) => typeof value === "number"))
    values.sort((a, b) => Number(a) - Number(b));
  else values.sort();
  const figures = values.map((value) =>
    points.filter(({ params }) => params[name] === value).map((point) => point.value),
  );
  return {
    categories: values.map((value) => valueText(name, value)),
    series: [
      { name: "best", values: figures.map((rates) => Math.max(...rates)) },
      { name: "median", values: figures.map((rates) => median(Float32Array.from(rates))) },
    ],
  };
}

export function valueText(name: string, value: Scalar): string {
  return name === "fragment" && typeof value === "number" ? exactSize(value) : String(value);
}
