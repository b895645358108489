// The records of a run as the browser meets them. Generated from python/assay/records/schema.py by
// "python -m assay.records.generate": change the structs there, never this file. A field with a default
// may be absent, because records leave their defaults out.

export const SCHEMA_VERSION = 1;

export type Scalar = string | number | boolean;

/**
 * What a host is: once a host and run. ``facts`` has dotted keys ("cpu.model", "mpi.library").
 */
export interface Context {
  kind: "context";
  subject?: Subject;
  facts?: Record<string, Scalar>;
  id?: number;
}

/**
 * A payload that did not arrive as it was sent: the first wrong byte of one message.
 */
export interface Corruption {
  kind: "corruption";
  name: string;
  subject?: Subject;
  params?: Record<string, Scalar>;
  message?: number;
  offset?: number;
  expected?: string;
  observed?: string;
  id?: number;
}

/**
 * Something that ended a measurement early: a rank that died, a host that does not answer.
 */
export interface Failure {
  kind: "failure";
  what: string;
  hint?: string;
  subject?: Subject;
  primary?: boolean;
  id?: number;
}

/**
 * A cause, named: who is at fault, by how much, how sure, why we think so, and what to do.
 */
export interface Finding {
  kind: "finding";
  rule: string;
  cause: string;
  subject?: Subject;
  side?: "block" | "both" | "node" | "none" | "pair" | "receive" | "transmit";
  severity?: "advice" | "fault" | "warning";
  effect?: number | null;
  confidence?: number | null;
  evidence?: number[];
  details?: string[];
  remedy?: string;
  id?: number;
}

/**
 * ``counts[k]`` samples lie from ``edges[k]`` up to ``edges[k + 1]``, in the unit of the measurement.
 */
export interface Histogram {
  edges: number[];
  counts: number[];
}

/**
 * One metric of one subject under one set of parameters.
 */
export interface Measurement {
  kind: "measurement";
  name: string;
  metric: string;
  unit: string;
  better?: "higher" | "lower" | "none";
  subject?: Subject;
  params?: Record<string, Scalar>;
  summary?: Summary | null;
  samples?: number[];
  histogram?: Histogram | null;
  status?: "error" | "ok" | "waived";
  reason?: string | null;
  id?: number;
}

/**
 * One row of a pair matrix: ``values[k]`` is the metric from ``subject.host`` to ``peers[k]``.
 *
 * A matrix of n hosts is n such rows, so that no line grows beyond n values and a killed run keeps
 * the rows that it had. A pair that was not measured is left out.
 */
export interface Pairs {
  kind: "pairs";
  name: string;
  metric: string;
  unit: string;
  better?: "higher" | "lower" | "none";
  subject?: Subject;
  params?: Record<string, Scalar>;
  peers?: string[];
  values?: number[];
  id?: number;
}

/**
 * What is embedded in ``report.html``: one run, whole.
 */
export interface ReportData {
  run: RunInfo;
  records: AnyRecord[];
}

/**
 * ``run.json``: what was asked, on what, when, and how it ended.
 */
export interface RunInfo {
  id: string;
  command: string[];
  assay: string;
  started: string;
  schema?: number;
  ended?: string | null;
  state?: "complete" | "failed" | "partial" | "running";
  reason?: string;
  outcome?: "FAIL" | "INCONCLUSIVE" | "PASS" | null;
  hosts?: string[];
  completed?: string[];
  options?: Record<string, Scalar | string[] | null>;
}

/**
 * What was measured. A network subject is a directed pair: bytes go from ``host`` to ``peer``.
 */
export interface Subject {
  host?: string | null;
  peer?: string | null;
  device?: string | null;
  numa?: number | null;
  rank?: number | null;
}

/**
 * Order statistics of ``n`` samples, in the unit of the measurement.
 *
 * ``mad`` is the median absolute deviation from the median, unscaled.
 */
export interface Summary {
  n: number;
  median: number;
  mad?: number;
  min?: number | null;
  max?: number | null;
  p5?: number | null;
  p95?: number | null;
  p99?: number | null;
}

/**
 * One criterion of a specification held against the records.
 *
 * ``margin`` is (observed - required) / required, positive when better than required.
 */
export interface Verdict {
  kind: "verdict";
  criterion: string;
  outcome: "FAIL" | "INCONCLUSIVE" | "PASS";
  specification?: string;
  metric?: string;
  where?: Record<string, Scalar>;
  unit?: string;
  observed?: number | null;
  required?: number | null;
  margin?: number | null;
  observed_text?: string;
  required_text?: string;
  subject?: Subject;
  evidence?: number[];
  reason?: string;
  remedy?: string;
  id?: number;
}

export type AnyRecord = Context | Corruption | Failure | Finding | Measurement | Pairs | Verdict;
