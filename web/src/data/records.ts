// The records of a run as the report's page reads them. Generated from python/assay/records/schema.py by
// "python -m assay.records.generate": change the structs there, never this file. A field with a default
// may be absent, because records leave their defaults out.

export type Scalar = string | number | boolean;

/**
 * One figure of the network's model, fitted to what was measured, with its 95 % interval.
 *
 * ``at_least``: ``value`` is a lower bound, because the link was never the limit, or because another link explains the
 * measured rates as well; ``reason`` names it. ``unknown``: there is no value.
 */
export interface Capacity {
  kind: "capacity";
  level: "backbone" | "cabinet" | "host" | "inside" | "network";
  resource: string;
  direction: "down" | "latency" | "limiter" | "through" | "up";
  unit: string;
  state: "at_least" | "measured" | "unknown";
  value?: number | null;
  low?: number | null;
  high?: number | null;
  cabinet?: string;
  n?: number;
  reason?: string;
  explanations?: string[];
  evidence?: number[];
  id?: number;
}

/**
 * One point of a curve, measured and simulated on the model. ``error`` is simulated / measured - 1.
 */
export interface Comparison {
  kind: "comparison";
  curve: string;
  axis: string;
  x: number;
  unit: string;
  measured: number;
  simulated?: number | null;
  error?: number | null;
  uncertainty?: number;
  label?: string;
  waived?: string;
  id?: number;
}

/**
 * Facts about a host or a device, from each engine that ran there; equal ones are in a run once. Keys are dotted:
 * "cpu.model", "mpi.library".
 */
export interface Context {
  kind: "context";
  subject?: Subject;
  facts?: Record<string, Scalar>;
  id?: number;
}

/**
 * A corrupted payload: the first wrong byte of a message.
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
 * A measurement that ended early, and why: a rank died, a host does not answer.
 */
export interface Failure {
  kind: "failure";
  problem: string;
  fix?: string;
  subject?: Subject;
  primary?: boolean;
  id?: number;
}

/**
 * A cause: the subject at fault, its effect, confidence, evidence and fix.
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
  fix?: string;
  id?: number;
}

/**
 * Concurrent flows: ``values[k]`` is the rate from ``sources[k]`` to ``targets[k]``.
 *
 * ``slices[k]`` are the flow's rates in equal parts of the time in which all flows ran. Without such a time there are
 * no values.
 */
export interface Flows {
  kind: "flows";
  name: string;
  metric: string;
  unit: string;
  better?: "higher" | "lower" | "none";
  subject?: Subject;
  params?: Record<string, Scalar>;
  sources?: string[];
  targets?: string[];
  values?: number[];
  slices?: number[][];
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
 * A host of an engine's job: its host name (unique in the job), its other names and its addresses.
 */
export interface Machine {
  host: string;
  names?: string[];
  addresses?: string[];
}

/**
 * A pair matrix of many hosts, whose cells are in files beside ``records.jsonl``; it replaces the rows (``pairs``)
 * that an engine sent.
 *
 * ``index``: file of ``cells`` sources, then ``cells`` targets, as positions in ``hosts`` (int32, little-endian).
 * Matrices with the same pairs share one. ``values``: file of ``cells`` values (float32, little-endian).
 */
export interface Matrix {
  kind: "matrix";
  name: string;
  metric: string;
  unit: string;
  better?: "higher" | "lower" | "none";
  params?: Record<string, Scalar>;
  hosts?: string[];
  cells?: number;
  index?: string;
  values?: string;
  id?: number;
}

/**
 * One metric of one subject under one set of parameters.
 *
 * ``status``: "ok"; "waived", it cannot be measured here; "error", its measurement went wrong, and a value in
 * ``summary`` is doubtful; "unfit", what should be measured is there and is not in order (down, degraded, without a
 * partner or an address). All but "ok" have a ``reason``.
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
  status?: "error" | "ok" | "unfit" | "waived";
  reason?: string | null;
  id?: number;
}

/**
 * One row of a pair matrix: ``values[k]`` is the metric from ``subject.host`` to ``peers[k]``.
 *
 * A matrix of n hosts has n rows, so that a line has at most n values and a killed run keeps its complete rows. Pairs
 * that were not measured are left out.
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
 * The label of each rank in records ("h3", or "h3:0", "h3:1" for several of a host), and the index of its host in
 * ``hosts``.
 */
export interface Ranks {
  kind: "ranks";
  labels: string[];
  host_index: number[];
  hosts: Machine[];
}

/**
 * ``run.json``: command, hosts, times and outcome of a run.
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
  result?: string;
  busy?: string;
  hosts?: string[];
  completed?: string[];
  options?: Record<string, Scalar | string[] | null>;
  last_record?: number;
}

/**
 * The subject of a record. In a network it is a directed pair: bytes go from ``host`` to ``peer``.
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
 * The judgement of a criterion of a specification.
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
  fix?: string;
  id?: number;
}

export type AnyRecord =
  | Capacity
  | Comparison
  | Context
  | Corruption
  | Failure
  | Finding
  | Flows
  | Matrix
  | Measurement
  | Pairs
  | Ranks
  | Verdict;
