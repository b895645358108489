// A plan: a fabric with its forwarding tables and a schedule, as python/assay/fabric/picture.py packs them. The loads of
// the links in any step are computed from it.

import type { Context } from "./records";

const FIRST_CODE = 35; // character code of 0; a character holds a port, or a destination + 1 (picture.py)
const MAX_HOPS = 64;

export interface Plan {
  hosts: string[]; // by rank; empty for a slot without a host
  host_switches: number[]; // the switch of a rank's host, -1 where there is none
  switches: string[];
  levels: number[]; // 0 for leaf switches, -1 for switches without a way to any host
  groups: number[]; // the part of the fabric that a switch belongs to
  links: [from: number[], fromPort: number[], to: number[], toPort: number[]]; // directed
  tables: string[]; // by switch: a character for each rank
  schedule: string;
  steps: string[]; // of a schedule without a formula
  outgoingLinks: Int32Array[]; // by switch and port: the link, -1 where there is none
}

export interface SharedLink {
  link: number;
  name: string; // both ends with their ports
  load: number;
  pairs: [source: string, target: string][];
}

/** Whether a context holds a plan, not facts of a host. */
export function isPlan({ facts }: Context): boolean {
  return facts?.["fabric.picture"] !== undefined;
}

/** The plan of a run; undefined where the run has none. */
export async function unpackPlan(contexts: readonly Context[]): Promise<Plan | undefined> {
  const packed = contexts.find(isPlan)?.facts!["fabric.picture"];
  if (typeof packed !== "string") return undefined;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return planOf((await new Response(stream).json()) as Omit<Plan, "outgoingLinks">);
}

export function planOf(data: Omit<Plan, "outgoingLinks">): Plan {
  const [from, port] = data.links;
  const ports = port.reduce((highest, p) => Math.max(highest, p), 0) + 1;
  const outgoingLinks = data.switches.map(() => new Int32Array(ports).fill(-1));
  from.forEach((node, link) => (outgoingLinks[node]![port[link]!] = link));
  return { ...data, outgoingLinks };
}

/** The rank that each rank sends to in a step, -1 for none. */
export function destinations(plan: Plan, step: number): Int32Array {
  const ranks = plan.hosts.length;
  const row = plan.steps[step] ?? "";
  const formula =
    plan.schedule === "shift"
      ? (rank: number) => (rank - step + ranks * Math.ceil(step / ranks)) % ranks
      : plan.schedule === "xor"
        ? (rank: number) => ((rank ^ step) < ranks ? rank ^ step : -1)
        : (rank: number) => (rank < row.length ? row.charCodeAt(rank) - FIRST_CODE - 1 : -1);
  return Int32Array.from({ length: ranks }, (_, rank) => formula(rank));
}

/** Calls ``onLink`` for each link between switches on the route of each flow of a step. */
function forEachCrossedLink(
  plan: Plan,
  step: number,
  onLink: (link: number, source: number, target: number) => void,
): void {
  const to = plan.links[2];
  destinations(plan, step).forEach((target, source) => {
    let switchNumber = plan.host_switches[source]!;
    const end = target < 0 ? -1 : plan.host_switches[target]!;
    if (switchNumber < 0 || end < 0) return;
    for (let hops = 0; switchNumber !== end && hops < MAX_HOPS; hops += 1) {
      const link =
        plan.outgoingLinks[switchNumber]![
          plan.tables[switchNumber]!.charCodeAt(target) - FIRST_CODE
        ] ?? -1;
      if (link < 0) return;
      onLink(link, source, target);
      switchNumber = to[link]!;
    }
  });
}

/** The flows on each link in a step. */
export function loadsOf(plan: Plan, step: number): Uint32Array {
  const loads = new Uint32Array(plan.links[0].length);
  forEachCrossedLink(plan, step, (link) => (loads[link]! += 1));
  return loads;
}

/** The links with at least ``minLoad`` flows in a step, the fullest first, with the pairs whose flows cross them. */
export function crossedLinks(
  plan: Plan,
  step: number,
  loads: Uint32Array,
  minLoad: number,
  among?: ReadonlySet<number>,
): SharedLink[] {
  const sharedLinks = new Map<number, SharedLink>();
  forEachCrossedLink(plan, step, (link, source, target) => {
    if (loads[link]! < minLoad || (among && !among.has(link))) return;
    const entry = sharedLinks.get(link) ?? {
      link,
      name: linkName(plan, link),
      load: loads[link]!,
      pairs: [],
    };
    sharedLinks.set(link, entry);
    entry.pairs.push([plan.hosts[source]!, plan.hosts[target]!]);
  });
  return [...sharedLinks.values()].sort((a, b) => b.load - a.load || a.link - b.link);
}

/** "leaf2[19] -> spine0[3]". */
function linkName({ links, switches }: Plan, link: number): string {
  const [from, fromPort, to, toPort] = links.map((column) => column[link]!) as [
    number,
    number,
    number,
    number,
  ];
  return `${switches[from]}[${fromPort}] -> ${switches[to]}[${toPort}]`;
}
