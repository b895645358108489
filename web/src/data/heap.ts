// Prepares a heap profile for the views: any metric by function, by line and by stack.
//
// Exclusive figures are allocations that a line or function made itself, through allocator functions too; inclusive
// ones add those of everything that it calls. A recursive function counts once for each stack.

import type { HeapPage } from "./heapPage";

type Fold = "sum" | "least" | "most" | "mean" | "peak";

export interface Metric {
  key: string;
  label: string;
  unit: string;
  fold: Fold;
  /** The value of a node; of a mean, the dividend. */
  value: (page: HeapPage, node: number) => number;
  divisor?: (page: HeapPage, node: number) => number;
}

const column =
  (name: Exclude<keyof HeapPage["nodes"], "parent" | "location">) =>
  (page: HeapPage, node: number): number =>
    page.nodes[name][node]!;

const ticks =
  (name: Exclude<keyof HeapPage["nodes"], "parent" | "location">) =>
  (page: HeapPage, node: number): number =>
    page.nodes[name][node]! * page.tick;

// Only a sample of the calls is timed; their mean is taken for all calls.
const spent =
  (
    ticksOf: "sampled_ticks" | "sampled_free_ticks",
    sampledOf: "sampled_calls" | "sampled_frees",
    count: "count" | "frees",
  ) =>
  (page: HeapPage, node: number) => {
    const sampled = page.nodes[sampledOf][node]!;
    return sampled > 0
      ? (page.nodes[ticksOf][node]! / sampled) * page.nodes[count][node]! * page.tick
      : 0;
  };

/** Reallocations here of blocks that were allocated elsewhere. */
export const FOREIGN_REALLOCATIONS: Metric = {
  key: "foreign_reallocations",
  label: "reallocations of others' blocks",
  unit: "1",
  fold: "sum",
  value: column("foreign_reallocations"),
};

export const METRICS: Metric[] = [
  { key: "bytes", label: "allocated", unit: "B", fold: "sum", value: column("bytes") },
  { key: "count", label: "allocations", unit: "1", fold: "sum", value: column("count") },
  { key: "peak", label: "peak", unit: "B", fold: "peak", value: column("exclusive_peak") },
  {
    key: "at_peak",
    label: "live at the process's peak",
    unit: "B",
    fold: "sum",
    value: column("at_peak"),
  },
  { key: "leaked", label: "not freed", unit: "B", fold: "sum", value: column("leaked") },
  {
    key: "leaked_count",
    label: "blocks not freed",
    unit: "1",
    fold: "sum",
    value: column("leaked_count"),
  },
  {
    key: "temporary",
    label: "freed before the next allocation",
    unit: "1",
    fold: "sum",
    value: column("temporary"),
  },
  {
    key: "reallocated",
    label: "reallocations",
    unit: "1",
    fold: "sum",
    value: column("reallocated"),
  },
  { key: "frees", label: "frees made here", unit: "1", fold: "sum", value: column("frees") },
  {
    key: "mean_size",
    label: "size, mean",
    unit: "B",
    fold: "mean",
    value: column("bytes"),
    divisor: column("count"),
  },
  { key: "least", label: "size, least", unit: "B", fold: "least", value: column("min_size") },
  { key: "most", label: "size, largest", unit: "B", fold: "most", value: column("max_size") },
  {
    key: "lifetime",
    label: "lifetime, mean",
    unit: "s",
    fold: "mean",
    value: ticks("lifetime_sum"),
    divisor: (page, node) => page.nodes.count[node]! - page.nodes.leaked_count[node]!,
  },
  {
    key: "shortest",
    label: "lifetime, shortest",
    unit: "s",
    fold: "least",
    value: ticks("min_lifetime"),
  },
  {
    key: "longest",
    label: "lifetime, longest",
    unit: "s",
    fold: "most",
    value: ticks("max_lifetime"),
  },
  {
    key: "malloc_time",
    label: "time in malloc",
    unit: "s",
    fold: "sum",
    value: spent("sampled_ticks", "sampled_calls", "count"),
  },
  {
    key: "free_time",
    label: "time in free",
    unit: "s",
    fold: "sum",
    value: spent("sampled_free_ticks", "sampled_frees", "frees"),
  },
];

export function metricOf(key: string): Metric {
  return METRICS.find((entry) => entry.key === key) ?? METRICS[0]!;
}

/** Whether the metric is additive, as shares and flame graphs require. */
export function isSum(metric: Metric): boolean {
  return metric.fold === "sum";
}

/** The figures of a line or function, by its location. Inclusive: with everything that it calls. */
export interface Entry {
  location: number;
  exclusive: number;
  inclusive: number;
}

export type Group = "function" | "line";

class Folded {
  private a: Float64Array;
  private b: Float64Array;
  private any: Uint8Array;

  constructor(
    size: number,
    private readonly fold: Fold,
  ) {
    this.a = new Float64Array(size);
    this.b = new Float64Array(size);
    this.any = new Uint8Array(size);
  }

  add(index: number, value: number, weight: number): void {
    if (this.fold === "least")
      this.a[index] = this.any[index] ? Math.min(this.a[index]!, value) : value;
    else if (this.fold === "most") this.a[index] = Math.max(this.a[index]!, value);
    else this.a[index]! += value;
    this.b[index]! += weight;
    this.any[index] = 1;
  }

  get(k: number): number {
    return this.fold === "mean" ? (this.b[k]! > 0 ? this.a[k]! / this.b[k]! : 0) : this.a[k]!;
  }
}

export class HeapModel {
  readonly allocationSite: Int32Array; // [node]: the location whose call allocated
  readonly children: number[][];
  readonly roots: number[] = [];
  private readonly entriesOf = new Map<string, Entry[]>();
  private readonly totalsOf = new Map<string, Float64Array>();

  constructor(readonly page: HeapPage) {
    const { parent, location } = page.nodes;
    const isAllocatorFrame = page.locations.is_allocator_frame;
    this.allocationSite = new Int32Array(parent.length);
    this.children = parent.map(() => []);
    const hasSite = new Uint8Array(parent.length); // a frame on the stack is not the allocator's
    parent.forEach((caller, node) => {
      if (caller >= 0) this.children[caller]!.push(node);
      else this.roots.push(node);
      const frame = location[node]!;
      const callerHasSite = caller >= 0 && hasSite[caller];
      hasSite[node] = !isAllocatorFrame[frame] || callerHasSite ? 1 : 0;
      this.allocationSite[node] =
        isAllocatorFrame[frame] && callerHasSite ? this.allocationSite[caller]! : frame;
    });
  }

  /** Whether blocks were allocated or freed at this node itself. */
  isUsed(metric: Metric, node: number): boolean {
    const { count, frees, reallocated, leaked_count } = this.page.nodes;
    if (metric.fold === "mean") return metric.divisor!(this.page, node) > 0;
    if (metric.key === "least" || metric.key === "most") return count[node]! > 0;
    if (metric.fold !== "sum") return count[node]! > leaked_count[node]!;
    return count[node]! + frees[node]! + reallocated[node]! > 0;
  }

  /** All functions or lines with a figure, the largest exclusive one first. */
  entries(metric: Metric, group: Group): Entry[] {
    const key = `${metric.key} ${group}`;
    let entries = this.entriesOf.get(key);
    if (!entries) {
      entries = metric.fold === "peak" ? this.peaks(group) : this.folded(metric, group);
      entries = entries
        .filter((entry) => entry.exclusive > 0 || entry.inclusive > 0)
        .sort((x, y) => y.exclusive - x.exclusive || y.inclusive - x.inclusive);
      this.entriesOf.set(key, entries);
    }
    return entries;
  }

  /** For each function with an exclusive figure, its line with the largest one. */
  busiest(metric: Metric): Map<number, number> {
    const lines = new Map<number, number>();
    for (const { location, exclusive } of this.entries(metric, "line")) {
      const functionId = this.page.locations.function_id[location]!;
      if (exclusive > 0 && !lines.has(functionId)) lines.set(functionId, location);
    }
    return lines;
  }

  private peaks(group: Group): Entry[] {
    const {
      function_id,
      exclusive_peak,
      inclusive_peak,
      function_exclusive_peak,
      function_inclusive_peak,
    } = this.page.locations;
    return function_id.flatMap((function_, location) => {
      if (group === "line")
        return [
          { location, exclusive: exclusive_peak[location]!, inclusive: inclusive_peak[location]! },
        ];
      return function_ === location
        ? [
            {
              location,
              exclusive: function_exclusive_peak[location]!,
              inclusive: function_inclusive_peak[location]!,
            },
          ]
        : [];
    });
  }

  private folded(metric: Metric, group: Group): Entry[] {
    const { parent, location } = this.page.nodes;
    const key = this.groupKey(group);
    const size = this.page.locations.function_id.length;
    const exclusive = new Folded(size, metric.fold);
    const inclusive = new Folded(size, metric.fold);
    const visited = new Int32Array(size).fill(-1);
    for (let node = 0; node < parent.length; node += 1) {
      if (!this.isUsed(metric, node)) continue;
      const value = metric.value(this.page, node);
      const weight = metric.divisor?.(this.page, node) ?? 0;
      exclusive.add(key(this.allocationSite[node]!), value, weight);
      for (let index = node; index >= 0; index = parent[index]!) {
        const member = key(location[index]!);
        if (visited[member] === node) continue;
        visited[member] = node;
        inclusive.add(member, value, weight);
      }
    }
    return Array.from({ length: size }, (_, index) => ({
      location: index,
      exclusive: exclusive.get(index),
      inclusive: inclusive.get(index),
    }));
  }

  groupKey(group: Group): (location: number) => number {
    const first = this.page.locations.function_id;
    return group === "line" ? (location) => location : (location) => first[location]!;
  }

  /** The inclusive figure of each node. */
  totals(metric: Metric): Float64Array {
    let totals = this.totalsOf.get(metric.key);
    if (!totals) {
      const { parent, inclusive_peak } = this.page.nodes;
      const folded = new Folded(parent.length, metric.fold);
      const sums = metric.fold === "sum";
      if (metric.fold === "peak") {
        totals = Float64Array.from(inclusive_peak);
      } else {
        for (let node = 0; node < parent.length; node += 1) {
          if (!this.isUsed(metric, node)) continue;
          const value = metric.value(this.page, node);
          const weight = metric.divisor?.(this.page, node) ?? 0;
          if (sums) folded.add(node, value, weight);
          else
            for (let index = node; index >= 0; index = parent[index]!)
              folded.add(index, value, weight);
        }
        totals = Float64Array.from(parent, (_, node) => folded.get(node));
        if (sums)
          for (let node = parent.length - 1; node >= 0; node -= 1)
            if (parent[node]! >= 0) totals[parent[node]!]! += totals[node]!;
      }
      this.totalsOf.set(metric.key, totals);
    }
    return totals;
  }

  /** The locations from the outermost caller to this node. */
  stack(node: number): number[] {
    const stack: number[] = [];
    for (let index = node; index >= 0; index = this.page.nodes.parent[index]!)
      stack.push(this.page.nodes.location[index]!);
    return stack.reverse();
  }

  /** Stacks with an exclusive figure that pass through a location (its line, or its function), or all stacks. */
  stacks(
    metric: Metric,
    through: number | undefined,
    group: Group,
    exclusiveOnly: boolean,
  ): { node: number; value: number }[] {
    const { parent, location } = this.page.nodes;
    const key = this.groupKey(group);
    const target = through === undefined ? -1 : key(through);
    const inside = new Uint8Array(parent.length); // [node]: the location is on its stack
    const stacks: { node: number; value: number }[] = [];
    for (let node = 0; node < parent.length; node += 1) {
      const caller = parent[node]!;
      inside[node] =
        target < 0 || key(location[node]!) === target || (caller >= 0 && inside[caller]) ? 1 : 0;
      if (
        !inside[node] ||
        !this.isUsed(metric, node) ||
        (exclusiveOnly && target >= 0 && key(this.allocationSite[node]!) !== target)
      )
        continue;
      const weight = metric.divisor?.(this.page, node) ?? 1;
      const value = weight > 0 ? metric.value(this.page, node) / (metric.divisor ? weight : 1) : 0;
      if (value > 0) stacks.push({ node, value });
    }
    return stacks.sort((x, y) => y.value - x.value);
  }

  functionName(location: number): string {
    return shortName(this.page.locations.function[location]!);
  }

  /** "solver.cpp:42", or the object where no source is known. */
  source(location: number): string {
    const { file, line, module } = this.page.locations;
    const name = basename(file[location]!);
    return name ? `${name}:${line[location]}` : basename(module[location]!);
  }
}

export function basename(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** Without what hides the name: standard strings' template arguments, and long parameter lists. */
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
