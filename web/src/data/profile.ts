// The model of a profile of any profiler: looks up the analyser's figures by function, line, stack and call.
//
// Exclusive figures are those of a line or function itself, allocator functions that it calls included; inclusive ones
// add all functions that it calls. Columns are decoded when they are first used, since a tree may have a million calls.

import type { Column, Groups, Metric, Source, SourceProblem, Tree } from "./profileTypes";

export type { Metric } from "./profileTypes";
export type Group = "function" | "line";
type Numbers = Int32Array | Uint8Array | Uint16Array | Uint32Array | Float32Array | Float64Array;

/** The figures of a line or function, by its first location. */
export interface Entry {
  location: number;
  exclusive: number;
  inclusive: number;
}

const ARRAYS = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  f4: Float32Array,
  f8: Float64Array,
};

export function decode(column: Column, rows: number): Numbers {
  if (column.type === "zero") return new Uint8Array(rows);
  const binary = atob(column.data);
  const bytes = new Uint8Array(binary.length);
  for (let k = 0; k < binary.length; k += 1) bytes[k] = binary.charCodeAt(k);
  return new ARRAYS[column.type](bytes.buffer);
}

/** Whether the metric is additive, as shares and flame graphs require. */
export function isSum(metric: Metric): boolean {
  return metric.fold === "sum";
}

export class ProfileModel {
  readonly parent: Numbers; // [node], -1 for an outermost call
  readonly location: Numbers; // [node]
  readonly stackNode: Numbers; // [stack]
  readonly stackSite: Numbers; // [stack]: the location to which its figures are attributed
  readonly roots: number[] = [];
  private readonly firstChild: Int32Array; // [node], -1 for none
  private readonly nextSibling: Int32Array;
  private readonly siteOf = new Map<number, number>(); // of stacks, by node
  private readonly columns = new Map<Column, Numbers>();
  private readonly entriesOf = new Map<string, Entry[]>();

  constructor(
    readonly tree: Tree,
    readonly sources: Record<string, Source>,
    readonly sourceProblems: SourceProblem[],
    private readonly allMetrics: Metric[],
  ) {
    const { nodes, stacks } = tree;
    this.parent = decode(nodes.parent, nodes.rows);
    this.location = decode(nodes.location, nodes.rows);
    this.stackNode = decode(stacks.node, stacks.rows);
    this.stackSite = decode(stacks.site, stacks.rows);
    this.firstChild = new Int32Array(nodes.rows).fill(-1);
    this.nextSibling = new Int32Array(nodes.rows).fill(-1);
    for (let node = nodes.rows - 1; node >= 0; node -= 1) {
      const caller = this.parent[node]!;
      if (caller < 0) {
        this.roots.push(node);
        continue;
      }
      this.nextSibling[node] = this.firstChild[caller]!;
      this.firstChild[caller] = node;
    }
    this.roots.reverse();
  }

  /** The metrics that a user may choose. */
  get metrics(): Metric[] {
    return this.allMetrics.filter((metric) => metric.shown ?? true);
  }

  metric(key: string): Metric {
    return this.allMetrics.find((metric) => metric.key === key) ?? this.allMetrics[0]!;
  }

  children(node: number): number[] {
    const children: number[] = [];
    for (let child = this.firstChild[node]!; child >= 0; child = this.nextSibling[child]!)
      children.push(child);
    return children;
  }

  /** The inclusive figure of each node. */
  totals(metric: Metric): Numbers {
    return this.figures(this.tree.nodes.figures, metric, this.tree.nodes.rows);
  }

  /** The figure of the whole profile: the sum of the outermost calls, or their largest. */
  total(metric: Metric): number {
    const totals = this.totals(metric);
    return this.roots.reduce(
      (all, node) => (isSum(metric) ? all + totals[node]! : Math.max(all, totals[node]!)),
      0,
    );
  }

  /** All functions or lines with a figure, the largest exclusive one first. */
  entries(metric: Metric, group: Group): Entry[] {
    const key = `${metric.key} ${group}`;
    let entries = this.entriesOf.get(key);
    if (!entries) {
      const groups = this.groups(group);
      const first = this.decoded(groups.location, groups.rows);
      const exclusive = this.figures(groups.exclusive, metric, groups.rows);
      const inclusive = this.figures(groups.inclusive, metric, groups.rows);
      entries = Array.from(first, (location, row) => ({
        location,
        exclusive: exclusive[row]!,
        inclusive: inclusive[row]!,
      }))
        .filter((entry) => entry.exclusive > 0 || entry.inclusive > 0)
        .sort((x, y) => y.exclusive - x.exclusive || y.inclusive - x.inclusive);
      this.entriesOf.set(key, entries);
    }
    return entries;
  }

  /** The line with the largest exclusive figure of each function, by the function's first location. */
  hottestLines(metric: Metric): Map<number, number> {
    const { function_id, line_id } = this.tree.locations;
    const ofLine = new Map(
      this.entries(metric, "line").map((entry) => [entry.location, entry.exclusive]),
    );
    const best = new Map<number, { location: number; value: number }>();
    line_id.forEach((line, location) => {
      const value = ofLine.get(line) ?? 0;
      const current = best.get(function_id[location]!);
      if (value > 0 && (!current || value > current.value))
        best.set(function_id[location]!, { location, value });
    });
    return new Map([...best].map(([id, { location }]) => [id, location]));
  }

  groupKey(group: Group): (location: number) => number {
    const { function_id, line_id } = this.tree.locations;
    const ids = group === "line" ? line_id : function_id;
    return (location) => ids[location]!;
  }

  /** The locations from the outermost caller to this node. */
  stack(node: number): number[] {
    const stack: number[] = [];
    for (let index = node; index >= 0; index = this.parent[index]!)
      stack.push(this.location[index]!);
    return stack.reverse();
  }

  /** The location to which a stack's figures are attributed. `node` is the innermost one of the stack. */
  site(node: number): number {
    if (this.siteOf.size === 0)
      this.stackNode.forEach((inner, row) => this.siteOf.set(inner, this.stackSite[row]!));
    return this.siteOf.get(node) ?? this.location[node]!;
  }

  /** Stacks with a figure that pass through a location (its line, or its function), or all stacks. */
  stacks(
    metric: Metric,
    through: number | undefined,
    group: Group,
    exclusiveOnly: boolean,
  ): { node: number; value: number }[] {
    const { rows } = this.tree.stacks;
    const values = this.figures(this.tree.stacks.figures, metric, rows);
    const key = this.groupKey(group);
    const target = through === undefined ? -1 : key(through);
    const inside = target < 0 ? undefined : this.inside(key, target);
    const stacks: { node: number; value: number }[] = [];
    for (let row = 0; row < rows; row += 1) {
      const node = this.stackNode[row]!;
      if (!(values[row]! > 0) || (inside && !inside[node])) continue;
      if (exclusiveOnly && target >= 0 && key(this.stackSite[row]!) !== target) continue;
      stacks.push({ node, value: values[row]! });
    }
    return stacks.sort((x, y) => y.value - x.value);
  }

  /** [node]: whether a call of the group is on its stack. */
  private inside(key: (location: number) => number, target: number): Uint8Array {
    const inside = new Uint8Array(this.parent.length);
    for (let node = 0; node < inside.length; node += 1) {
      const caller = this.parent[node]!;
      if (key(this.location[node]!) === target || (caller >= 0 && inside[caller])) inside[node] = 1;
    }
    return inside;
  }

  functionName(location: number): string {
    return shortName(this.tree.locations.function[location]!);
  }

  /** "solver.cpp:42", or the object where no source is known. */
  source(location: number): string {
    const { file, line, module } = this.tree.locations;
    const name = basename(file[location]!);
    return name ? `${name}:${line[location]}` : basename(module[location]!);
  }

  private groups(group: Group): Groups {
    return group === "line" ? this.tree.lines : this.tree.functions;
  }

  private figures(columns: Record<string, Column>, metric: Metric, rows: number): Numbers {
    if (metric.fold !== "mean") return this.decoded(columns[metric.key]!, rows);
    const dividend = this.decoded(columns[metric.dividend!]!, rows);
    const divisor = this.decoded(columns[metric.divisor!]!, rows);
    return Float64Array.from(dividend, (value, row) =>
      divisor[row]! > 0 ? value / divisor[row]! : 0,
    );
  }

  private decoded(column: Column, rows: number): Numbers {
    let numbers = this.columns.get(column);
    if (!numbers) {
      numbers = decode(column, rows);
      this.columns.set(column, numbers);
    }
    return numbers;
  }
}

export function basename(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** A function's name without template arguments of standard strings, cut after 120 characters. */
export function shortName(name: string): string {
  const short = name
    .replaceAll(
      /std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> ?>/g,
      "std::string",
    )
    .replaceAll(/, std::allocator<[^<>]*> ?>/g, ">")
    .replaceAll("(anonymous namespace)::", "");
  return short.length > 120 ? `${short.slice(0, 117)}…` : short;
}
