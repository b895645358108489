// Chooses the items of the picture of a fabric: all switches, or in a large fabric its parts. A part can be opened: the
// picture then shows its switches, with the parts that they are cabled to.

import type { Plan } from "./plan";

const MAX_SWITCHES = 128; // a fabric with more switches is shown by its parts
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

/** The items, rows and lines of the picture. ``opened``: the switches of the opened part, null for the whole fabric. */
export function viewOf(plan: Plan, opened: readonly number[] | null): View {
  const all = plan.switches
    .map((_, number) => number)
    .filter((number) => plan.levels[number]! >= 0);
  const isSmall = all.length <= MAX_SWITCHES;
  const single = new Set(opened ?? (isSmall ? all : []));
  const around = opened && neighbours(plan, single);
  const parts = new Map<string, number[]>();
  for (const number of all) {
    const key = single.has(number)
      ? `${plan.levels[number]} ${number}`
      : isSmall
        ? `${plan.levels[number]} ${number}`
        : `${lowestLevelOfPart(plan, number)} part ${plan.groups[number]}`;
    parts.set(key, [...(parts.get(key) ?? []), number]);
  }
  let items = [...parts.values()].map((switches) => itemOf(plan, switches));
  if (around)
    items = items.filter((item) => item.switches.some((n) => single.has(n) || around.has(n)));
  return arrangeInRows(plan, items, single);
}

/** The switches that are cabled to one of ``inside``. */
function neighbours({ links: [from, , to] }: Plan, inside: ReadonlySet<number>): Set<number> {
  const result = new Set<number>();
  from.forEach((node, link) => inside.has(node) && result.add(to[link]!));
  return result;
}

const lowestLevels = new WeakMap<Plan, Map<number, number>>();

/** The lowest level of the part that a switch belongs to. */
function lowestLevelOfPart(plan: Plan, number: number): number {
  let levels = lowestLevels.get(plan);
  if (!levels) {
    levels = new Map();
    plan.groups.forEach((group, k) => {
      if (plan.levels[k]! >= 0)
        levels!.set(group, Math.min(plan.levels[k]!, levels!.get(group) ?? Infinity));
    });
    lowestLevels.set(plan, levels);
  }
  return levels.get(plan.groups[number]!)!;
}

function itemOf(plan: Plan, switches: number[]): Item {
  const first = plan.switches[switches[0]!]!;
  const last = plan.switches[switches[switches.length - 1]!]!;
  const inside = new Set(switches);
  return {
    name: switches.length === 1 ? first : `${first} … ${last}`,
    switches,
    hosts: plan.host_switches.filter((number) => inside.has(number)).length,
    level: Math.min(...switches.map((number) => plan.levels[number]!)),
  };
}

/** Arranges items in a row for each level. In a row of more than MAX_IN_ROW items, neighbours are joined. */
function arrangeInRows(plan: Plan, items: Item[], single: ReadonlySet<number>): View {
  const levels = [...new Set(items.map(({ level }) => level))].sort((a, b) => a - b);
  const groupedItems: Item[] = [];
  const rows = levels.map((level) => {
    const row = items.filter((item) => item.level === level);
    const size = Math.ceil(row.length / MAX_IN_ROW);
    const joinedItems: Item[] = [];
    for (let k = 0; k < row.length; k += size)
      joinedItems.push(
        size === 1
          ? row[k]!
          : itemOf(
              plan,
              row.slice(k, k + size).flatMap((item) => item.switches),
            ),
      );
    return joinedItems.map((item) => groupedItems.push(item) - 1);
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
