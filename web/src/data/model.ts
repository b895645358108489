// The network's model: capacities by cabinet and host, and curves of measured and simulated points.

import { fold } from "./hosts";
import type { Capacity, Comparison } from "./records";

export interface Cabinet {
  name: string;
  hosts: Host[];
  inside?: Capacity;
  up?: Capacity;
  down?: Capacity;
  limiter?: Capacity;
}

export interface Host {
  name: string;
  up?: Capacity;
  down?: Capacity;
  limiter?: Capacity;
}

export interface Platform {
  cabinets: Cabinet[];
  backbone?: Capacity;
}

export function platform(capacities: readonly Capacity[]): Platform {
  const cabinets = new Map<string, Cabinet>();
  const hosts = new Map<string, Host>();
  const result: Platform = { cabinets: [] };
  const cabinet = (name: string): Cabinet => {
    if (!cabinets.has(name)) cabinets.set(name, { name, hosts: [] });
    return cabinets.get(name)!;
  };
  for (const capacity of capacities) {
    if (capacity.level === "backbone") result.backbone = capacity;
    if (capacity.level === "inside") cabinet(capacity.resource).inside = capacity;
    if (capacity.level === "cabinet")
      Object.assign(cabinet(capacity.resource), { [capacity.direction]: capacity });
    if (capacity.level !== "host") continue;
    let host = hosts.get(capacity.resource);
    if (!host) {
      host = { name: capacity.resource };
      hosts.set(capacity.resource, host);
      cabinet(capacity.cabinet ?? "").hosts.push(host);
    }
    Object.assign(host, { [capacity.direction]: capacity });
  }
  result.cabinets = [...cabinets.values()];
  return result;
}

const SIMILAR = 0.03; // relative; hosts whose capacities differ less share a row

/** The capacities with similar hosts of a cabinet in one row: the median, and the interval that holds all of them. */
export function folded(capacities: readonly Capacity[]): Capacity[] {
  const groups: Capacity[][] = [];
  for (const capacity of capacities) {
    const group = groups.find(([first]) => first!.level === "host" && isSimilar(first!, capacity));
    if (group) group.push(capacity);
    else groups.push([capacity]);
  }
  return groups.map((group) => {
    if (group.length === 1) return group[0]!;
    const middle = group.toSorted((a, b) => (a.value ?? 0) - (b.value ?? 0))[group.length >> 1]!;
    const ends = (end: "low" | "high") => group.flatMap((one) => one[end] ?? []);
    return {
      ...middle,
      resource: fold(group.map(({ resource }) => resource)),
      low: ends("low").length > 0 ? Math.min(...ends("low")) : null,
      high: ends("high").length > 0 ? Math.max(...ends("high")) : null,
    };
  });
}

function isSimilar(first: Capacity, other: Capacity): boolean {
  const key = ({ level, cabinet, direction, state, unit }: Capacity) =>
    JSON.stringify([level, cabinet ?? "", direction, state, unit]);
  if (key(first) !== key(other)) return false;
  const [a, b] = [first.value ?? null, other.value ?? null];
  return a === null || b === null ? a === b : Math.abs(a - b) <= SIMILAR * a;
}

export interface Overlaid {
  name: string;
  axis: string;
  unit: string;
  points: Comparison[];
  worst?: number; // the largest error; undefined where a point was not simulated
}

export function overlaid(comparisons: readonly Comparison[]): Overlaid[] {
  const curves = new Map<string, Overlaid>();
  for (const point of comparisons) {
    const curve = curves.get(point.curve) ?? {
      name: point.curve,
      axis: point.axis,
      unit: point.unit,
      points: [],
    };
    curves.set(point.curve, curve);
    curve.points.push(point);
  }
  for (const curve of curves.values()) {
    const errors = curve.points.map((point) => point.error);
    if (errors.every((error): error is number => typeof error === "number"))
      curve.worst = Math.max(...errors.map(Math.abs));
  }
  return [...curves.values()];
}
