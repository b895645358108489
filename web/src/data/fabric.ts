// The conflicts of a schedule on a fabric: totals, the curve over steps, the switches by level, and the links that
// several flows of a step share. The records are those of python/assay/measure/fabric.py.

import type { Context, Flows, Measurement } from "./records";

export const CONFLICTS = "fabric.conflicts";

export interface Totals {
  schedule: string;
  ranks: number;
  conflicts: number;
  share: number;
  rounds: number;
  bound: number;
}

export interface Switch {
  name: string;
  level: number;
  hosts: number;
  above: string[]; // names of switches of its own or a higher level that it is cabled to
}

export interface SharedLink {
  name: string; // both ends with their ports
  from: string;
  to: string;
  load: number;
  pairs: [source: string, target: string][];
}

export function isOfFabric({ name }: Measurement): boolean {
  return name.startsWith("fabric.");
}

/** Whether a context describes a switch of the picture, and no host. */
export function isOfSwitch({ facts }: Context): boolean {
  return facts?.["fabric.level"] !== undefined;
}

/** The totals of a schedule; undefined in a run without one (`assay fabric check`). */
export function totals(measurements: readonly Measurement[]): Totals | undefined {
  const value = (metric: string) =>
    measurements.find((record) => record.metric === metric && record.params?.["step"] === undefined)
      ?.summary?.median ?? NaN;
  const head = measurements.find((record) => record.metric === "conflicts_total");
  return (
    head && {
      schedule: String(head.params?.["schedule"]),
      ranks: Number(head.params?.["ranks"]),
      conflicts: value("conflicts_total"),
      share: value("conflicts_share"),
      rounds: value("rounds"),
      bound: value("rounds_bound"),
    }
  );
}

/** [step, value] of a metric, in the order of steps. */
export function overSteps(
  measurements: readonly Measurement[],
  metric: string,
): [step: number, value: number][] {
  return measurements
    .filter((record) => record.metric === metric && record.params?.["step"] !== undefined)
    .map((record): [number, number] => [
      Number(record.params!["step"]),
      record.summary?.median ?? NaN,
    ])
    .sort(([a], [b]) => a - b);
}

/** The switches of each level, leaf switches first; empty for a fabric too large to draw. */
export function levels(contexts: readonly Context[]): Switch[][] {
  const found: Switch[][] = [];
  for (const { subject, facts } of contexts.filter(isOfSwitch)) {
    const level = Number(facts!["fabric.level"]);
    if (level > 16) return []; // a switch without a path to any host
    (found[level] ??= []).push({
      name: subject?.device ?? "",
      level,
      hosts: Number(facts!["fabric.hosts_on_switch"]),
      above: String(facts!["fabric.above"]).split("\t").filter(Boolean),
    });
  }
  return Array.from(found, (row) => row ?? []);
}

/** The shared links of each step. Steps that are not listed were left out, or have none. */
export function sharedBySteps(records: readonly Flows[]): Map<number, SharedLink[]> {
  const steps = new Map<number, SharedLink[]>();
  for (const { subject, params, sources = [], targets = [] } of records) {
    const step = Number(params?.["step"]);
    const links = steps.get(step) ?? [];
    steps.set(step, links);
    links.push({
      name: subject?.device ?? "",
      from: String(params?.["from"]),
      to: String(params?.["to"]),
      load: sources.length,
      pairs: sources.map((source, k): [string, string] => [source, targets[k] ?? ""]),
    });
  }
  return steps;
}
