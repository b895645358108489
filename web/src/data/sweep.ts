// Sweeps: measurements of several hosts together over message sizes, with a row for each size and operation.

import { formatParameters } from "./format";
import type { Measurement, Scalar } from "./records";

export interface SweepRow {
  size: number;
  op: string;
  metrics: Record<string, Measurement>;
}

/** One sweep: rows that differ in size and operation only. */
export interface Sweep {
  key: string;
  name: string;
  params: Record<string, Scalar>; // those that all rows share
  rows: SweepRow[];
}

export function isSweepPoint(record: Measurement): boolean {
  return typeof record.params?.size === "number" && !record.subject?.host;
}

export function sweeps(points: readonly Measurement[]): Sweep[] {
  const sweeps = new Map<string, Sweep>();
  const rows = new Map<string, SweepRow>();
  for (const point of points) {
    const { size, op, ...params } = withoutIterations(point.params);
    const key = JSON.stringify([point.name, ...Object.entries(params).sort()]);
    const sweep = sweeps.get(key) ?? { key, name: point.name, params, rows: [] };
    sweeps.set(key, sweep);
    const rowKey = JSON.stringify([key, size, op]);
    let row = rows.get(rowKey);
    if (!row) {
      row = { size: Number(size), op: String(op ?? ""), metrics: {} };
      rows.set(rowKey, row);
      sweep.rows.push(row);
    }
    row.metrics[point.metric] = point;
  }
  for (const sweep of sweeps.values()) {
    const order = operations(sweep);
    sweep.rows.sort((a, b) => order.indexOf(a.op) - order.indexOf(b.op) || a.size - b.size);
  }
  // Sizes that were left out have parameters of their own: their sweep, without a value, comes last.
  return [...sweeps.values()].sort((a, b) => Number(isMeasured(b)) - Number(isMeasured(a)));
}

function isMeasured({ rows }: Sweep): boolean {
  return rows.some(({ metrics }) => Object.values(metrics).some((m) => medianOf(m) !== undefined));
}

/** Parameters without the number of iterations, which differs between the sizes of one sweep. */
export function withoutIterations(params: Record<string, Scalar> = {}): Record<string, Scalar> {
  const { iterations: _iterations, ...rest } = params;
  return rest;
}

/** The operations of a sweep, in the order in which they were measured. */
export function operations(sweep: Sweep): string[] {
  return [...new Set(sweep.rows.map((row) => row.op))];
}

export function sweepTitle(sweep: Sweep): string {
  const shared = formatParameters(sweep.params);
  return shared ? `${sweep.name} (${shared})` : sweep.name;
}

/** The median of a measurement; undefined where it was waived or failed. */
export function medianOf(record: Measurement | undefined): number | undefined {
  return record?.summary?.median ?? record?.samples?.[0];
}
