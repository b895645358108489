// Chooses what the picture of a fabric shows: each switch, or, where they are too many, parts of the fabric. A part can
// be opened: then its switches are drawn, with the parts that they are cabled to.

import type { Plan } from "./plan";

const MAX_ALONE = 128; // switches that are drawn one by one
const MAX_IN_ROW = 72;

/** A switch or a part of the fabric. */
export interface Item {
  name: string;
  switches: number[];
  hosts: number;
  level: number; // the lowest of its switches
}

/** All cables between two items. */
export interface Line {
  ends: [lower: number, upper: number]; // of View.items
  links: number[]; // both directions
}

export interface View {
  items: Item[];
  rows: number[][]; // items of each level, leaf switches first
  lines: Line[];
}

/** ``opened``: the switches of the part that is open, null for the whole fabric. */
export function viewOf(plan: Plan, opened: readonly number[] | null): View {
  const all = plan.switches
    .map((_, number) => number)
    .filter((number) => plan.levels[number]! >= 0);
  const isSmall = all.length <= MAX_ALONE;
  const single = new Set(opened ?? (isSmall ? all : []));
  const around = opened && neighbours(plan, single);
  const parts = new Map<string, number[]>();
  for (const number of all) {
    const key = single.has(number)
      ? `${plan.levels[number]} ${number}`
      : isSmall
        ? `${plan.levels[number]} ${number}`
        : `${lowest(plan, number)} part ${plan.groups[number]}`;
    parts.set(key, [...(parts.get(key) ?? []), number]);
  }
  let items = [...parts.values()].map((switches) => itemOf(plan, switches));
  if (around)
    items = items.filter((item) => item.switches.some((n) => single.has(n) || around.has(n)));
  return arranged(plan, items, single);
}

/** The switches that are cabled to one of ``inside``. */
function neighbours({ links: [from, , to] }: Plan, inside: ReadonlySet<number>): Set<number> {
  const found = new Set<number>();
  from.forEach((node, link) => inside.has(node) && found.add(to[link]!));
  return found;
}

const lowestLevels = new WeakMap<Plan, Map<number, number>>();

/** The lowest level of the part that a switch belongs to. */
function lowest(plan: Plan, number: number): number {
  let known = lowestLevels.get(plan);
  if (!known) {
    known = new Map();
    plan.groups.forEach((group, k) => {
      if (plan.levels[k]! >= 0)
        known!.set(group, Math.min(plan.levels[k]!, known!.get(group) ?? Infinity));
    });
    lowestLevels.set(plan, known);
  }
  return known.get(plan.groups[number]!)!;
}

function itemOf(plan: Plan, switches: number[]): Item {
  const first = plan.switches[switches[0]!]!;
  const last = plan.switches[switches[switches.length - 1]!]!;
  const inside = new Set(switches);
  return {
    name: switches.length === 1 ? first : `${first} … ${last}`,
    switches,
    hosts: plan.on.filter((number) => inside.has(number)).length,
    level: Math.min(...switches.map((number) => plan.levels[number]!)),
  };
}

/** Rows of at most MAX_IN_ROW items: neighbours in a longer one become one item. */
function arranged(plan: Plan, items: Item[], single: ReadonlySet<number>): View {
  const levels = [...new Set(items.map(({ level }) => level))].sort((a, b) => a - b);
  const groupedItems: Item[] = [];
  const rows = levels.map((level) => {
    const row = items.filter((item) => item.level === level);
    const size = Math.ceil(row.length / MAX_IN_ROW);
    const joined: Item[] = [];
    for (let k = 0; k < row.length; k += size)
      joined.push(
        size === 1
          ? row[k]!
          : itemOf(
              plan,
              row.slice(k, k + size).flatMap((item) => item.switches),
            ),
      );
    return joined.map((item) => groupedItems.push(item) - 1);
  });
  return { items: groupedItems, rows, lines: linesOf(plan, groupedItems, single) };
}

function linesOf(
  { links: [from, , to] }: Plan,
  items: Item[],
  single: ReadonlySet<number>,
): Line[] {
  const itemOfSwitch = new Map<number, number>();
  items.forEach((item, k) => item.switches.forEach((number) => itemOfSwitch.set(number, k)));
  const lines = new Map<number, Line>();
  from.forEach((node, link) => {
    const [a, b] = [itemOfSwitch.get(node), itemOfSwitch.get(to[link]!)];
    if (a === undefined || b === undefined || a === b) return;
    if (single.size > 0 && !single.has(node) && !single.has(to[link]!)) return;
    const isUp =
      items[a]!.level < items[b]!.level || (items[a]!.level === items[b]!.level && a < b);
    const ends: [number, number] = isUp ? [a, b] : [b, a];
    const key = ends[0] * items.length + ends[1];
    const line = lines.get(key) ?? { ends, links: [] };
    lines.set(key, line);
    line.links.push(link);
  });
  return [...lines.values()];
}
