// The data of the page's bar charts: a metric of several hosts, devices or parameters, with the limits of its verdicts;
// of its distributions; and of the bandwidth between NUMA nodes as a matrix.

import { exactSize, formatParameters } from "./format";
import { naturally } from "./hosts";
import { median, type Matrix } from "./matrix";
import type { Finding, Histogram, Measurement, Scalar, Subject, Verdict } from "./records";
import { medianOf } from "./sweep";

export interface Bar {
  label: string;
  value: number;
  low: number | undefined; // the 5th and 95th percentile; undefined with few samples
  high: number | undefined;
  limits: Limit[];
  isSlow: boolean; // it misses a limit, or a finding names its record
}

interface Limit {
  value: number;
  atLeast: boolean;
  outcome: Verdict["outcome"];
}

export interface BarGroup {
  key: string;
  title: string;
  unit: string;
  bars: Bar[];
  limits: Limit[]; // of all bars, each once
}

export interface Distribution {
  key: string;
  title: string;
  unit: string;
  histogram: Histogram;
}

const MAX_BARS = 40; // groups with more bars are shown in the table of measurements only

function memoryNode(record: Measurement): Scalar | undefined {
  return record.params?.["memory_node"];
}

function isBetweenNodes(record: Measurement): boolean {
  return (
    isOk(record) &&
    typeof memoryNode(record) === "number" &&
    (typeof record.subject?.numa === "number" || isRemote(record))
  );
}

// The memory is that of another node than the cores', which may be in no node.
function isRemote(record: Measurement): boolean {
  return record.params?.["locality"] === "remote";
}

function isOk(record: Measurement): boolean {
  return (record.status ?? "ok") === "ok" && medianOf(record) !== undefined;
}

/** The groups of bars. Only rates have bars, because counts and shares have no common scale. Figures of a matrix are
 * left out. */
export function barGroups(
  measurements: readonly Measurement[],
  verdicts: readonly Verdict[],
  findings: readonly Finding[] = [],
): BarGroup[] {
  const accused = new Set(
    findings.flatMap(({ severity, effect, evidence = [] }) =>
      severity !== "advice" && (effect ?? -1) < 0 ? evidence : [],
    ),
  );
  const groups = new Map<string, Measurement[]>();
  const isMatrix = measurements.some(
    (record) => isBetweenNodes(record) && record.subject!.numa !== memoryNode(record),
  );
  for (const record of measurements) {
    if (
      !isOk(record) ||
      !["B/s", "1/s"].includes(record.unit) ||
      (isMatrix && isBetweenNodes(record))
    )
      continue;
    const key = `${record.name} ${record.metric}`;
    groups.set(key, [...(groups.get(key) ?? []), record]);
  }
  return [...groups]
    .filter(([, records]) => records.length > 1 && records.length <= MAX_BARS)
    .map(([key, records]) => ({
      key,
      title: `${key}${shared(records)}`,
      unit: records[0]!.unit,
      bars: records.map((record) => ({
        label: difference(record, records) || key,
        value: medianOf(record)!,
        low: spreadEnd(record, "p5"),
        high: spreadEnd(record, "p95"),
        limits: limitsOf(record, records, verdicts),
        isSlow:
          accused.has(record.id ?? NaN) ||
          limitsOf(record, records, verdicts).some((limit) => misses(medianOf(record)!, limit)),
      })),
      limits: distinct(records.flatMap((record) => limitsOf(record, records, verdicts))),
    }));
}

function misses(value: number, limit: Limit): boolean {
  return limit.atLeast ? value < limit.value : value > limit.value;
}

function spreadEnd(record: Measurement, end: "p5" | "p95"): number | undefined {
  return (record.summary?.n ?? 0) > 2 ? (record.summary![end] ?? undefined) : undefined;
}

/** The limits that apply to a record: those of the verdicts on its metric whose conditions it meets. */
function limitsOf(
  record: Measurement,
  among: Measurement[],
  verdicts: readonly Verdict[],
): Limit[] {
  const ids = new Set(among.map(({ id }) => id));
  const atLeast = record.better !== "lower";
  return verdicts.flatMap(({ evidence = [], required, unit, outcome, where = {} }) =>
    typeof required === "number" &&
    unit === record.unit &&
    ids.has(evidence[0]) &&
    meets(record, where)
      ? [{ value: required, atLeast, outcome }]
      : [],
  );
}

function meets({ params = {}, subject = {} }: Measurement, where: Record<string, Scalar>): boolean {
  return Object.entries(where).every(
    ([key, value]) => (params[key] ?? (subject as Record<string, unknown>)[key]) === value,
  );
}

function distinct(limits: Limit[]): Limit[] {
  return [...new Map(limits.map((limit) => [limit.value, limit])).values()];
}

/** The texts that distinguish two records, by key: host, peer, device, NUMA node and each parameter. */
function traits({ subject = {}, params = {} }: Measurement): Map<string, string> {
  const traitsByKey = new Map<string, string>();
  const { host, peer, device, numa } = subject as Subject;
  if (host) traitsByKey.set("host", host);
  if (peer) traitsByKey.set("peer", `to ${peer}`);
  if (device) traitsByKey.set("device", device);
  if (typeof numa === "number") traitsByKey.set("numa", `node ${numa}`);
  for (const [name, value] of Object.entries(params)) {
    const text =
      name === "size" ? exactSize(Number(value)) : formatParameters({ [name]: value as Scalar });
    if (text) traitsByKey.set(`param ${name}`, text);
  }
  return traitsByKey;
}

function isShared(key: string, records: Measurement[]): boolean {
  const first = traits(records[0]!).get(key);
  return records.every((record) => traits(record).get(key) === first);
}

function difference(record: Measurement, among: Measurement[]): string {
  const differing = [...traits(record)].filter(([key]) => !isShared(key, among));
  return differing.map(([, text]) => text).join(", ");
}

function shared(records: Measurement[]): string {
  const common = [...traits(records[0]!)].filter(([key]) => isShared(key, records));
  return common.length > 0 ? `, ${common.map(([, text]) => text).join(", ")}` : "";
}

export function distributions(measurements: readonly Measurement[]): Distribution[] {
  const differing = measurements.filter(
    (record) => record.histogram && record.histogram.counts.some((count) => count > 0),
  );
  return differing.map((record, index) => ({
    key: String(record.id ?? index),
    title: [`${record.name} ${record.metric}`, ...traits(record).values()].join(", "),
    unit: record.unit,
    histogram: record.histogram!,
  }));
}

/** Memory bandwidth from the cores of each NUMA node (row) to the memory of each (column), one matrix for
 * each host and set of other parameters; none where a host has one node. */
export function numaMatrices(measurements: readonly Measurement[]): Matrix[] {
  const byKey = new Map<string, Measurement[]>();
  for (const record of measurements) {
    if (!isBetweenNodes(record)) continue;
    const {
      memory_node: _memory,
      locality: _locality,
      threads: _threads,
      ...rest
    } = record.params!;
    const threads = record.params!["threads"] === 1 ? "one thread" : "all threads";
    const key = [
      record.subject!.host,
      record.name,
      record.metric,
      formatParameters(rest),
      threads,
    ].join("\u0000");
    byKey.set(key, [...(byKey.get(key) ?? []), record]);
  }
  return [...byKey].flatMap(([key, records]) => {
    const matrix = numaMatrix(key, records);
    return matrix.rows.length * matrix.columns.length > 1 ? [matrix] : [];
  });
}

function numaMatrix(key: string, records: Measurement[]): Matrix {
  const row = (record: Measurement) => `cores ${record.subject!.numa ?? "of no node"}`;
  const column = (record: Measurement) => `memory ${memoryNode(record)}`;
  const rows = [...new Set(records.map(row))].sort(naturally);
  const columns = [...new Set(records.map(column))].sort(naturally);
  const values = new Float32Array(rows.length * columns.length).fill(NaN);
  for (const record of records) {
    values[rows.indexOf(row(record)) * columns.length + columns.indexOf(column(record))] =
      medianOf(record)!;
  }
  const first = records[0]!;
  const [host, , , rest, threads] = key.split("\u0000");
  const medianValue = median(values);
  return {
    key,
    name: first.name,
    metric: first.metric,
    unit: first.unit,
    lowerIsBetter: first.better === "lower",
    params: { host: host ?? "", parameters: [rest, threads].filter(Boolean).join(", ") },
    rows,
    columns,
    values,
    measured: records.length,
    median: medianValue,
    worst: Math.min(
      0,
      ...[...values]
        .filter((value) => !Number.isNaN(value))
        .map((value) => value / medianValue - 1),
    ),
  };
}
