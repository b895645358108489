// A heap profile made ready for the views: figures by function, by line and by stack, of whatever metric.
//
// "Own" is what a line or function has asked for itself, the library's functions that it has called to do so
// included; "total" is that and what was asked for below it. A function that is several times on a stack counts once.

import type { HeapPage } from "./heapPage";

type Fold = "sum" | "least" | "most" | "mean" | "peak";

export interface Metric {
  key: string;
  words: string;
  unit: string;
  fold: Fold;
  /** Of a node; of a mean, what is divided. */
  of: (page: HeapPage, node: number) => number;
  by?: (page: HeapPage, node: number) => number;
}

const column =
  (name: Exclude<keyof HeapPage["nodes"], "parent" | "location">) =>
  (page: HeapPage, node: number): number =>
    page.nodes[name][node]!;

const ticks =
  (name: Exclude<keyof HeapPage["nodes"], "parent" | "location">) =>
  (page: HeapPage, node: number): number =>
    page.nodes[name][node]! * page.tick;

// Only a sample of the calls is timed: their mean is taken for all.
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
  words: "reallocations of others' blocks",
  unit: "1",
  fold: "sum",
  of: column("foreign_reallocations"),
};

export const METRICS: Metric[] = [
  { key: "bytes", words: "allocated", unit: "B", fold: "sum", of: column("bytes") },
  { key: "count", words: "allocations", unit: "1", fold: "sum", of: column("count") },
  { key: "peak", words: "peak", unit: "B", fold: "peak", of: column("exclusive_peak") },
  {
    key: "at_peak",
    words: "live at the process's peak",
    unit: "B",
    fold: "sum",
    of: column("at_peak"),
  },
  { key: "leaked", words: "not freed", unit: "B", fold: "sum", of: column("leaked") },
  {
    key: "leaked_count",
    words: "blocks not freed",
    unit: "1",
    fold: "sum",
    of: column("leaked_count"),
  },
  {
    key: "temporary",
    words: "freed before the next allocation",
    unit: "1",
    fold: "sum",
    of: column("temporary"),
  },
  { key: "reallocated", words: "reallocations", unit: "1", fold: "sum", of: column("reallocated") },
  { key: "frees", words: "frees made here", unit: "1", fold: "sum", of: column("frees") },
  {
    key: "mean_size",
    words: "size, mean",
    unit: "B",
    fold: "mean",
    of: column("bytes"),
    by: column("count"),
  },
  { key: "least", words: "size, least", unit: "B", fold: "least", of: column("min_size") },
  { key: "most", words: "size, largest", unit: "B", fold: "most", of: column("max_size") },
  {
    key: "lifetime",
    words: "lifetime, mean",
    unit: "s",
    fold: "mean",
    of: ticks("lifetime_sum"),
    by: (page, node) => page.nodes.count[node]! - page.nodes.leaked_count[node]!,
  },
  {
    key: "shortest",
    words: "lifetime, shortest",
    unit: "s",
    fold: "least",
    of: ticks("min_lifetime"),
  },
  {
    key: "longest",
    words: "lifetime, longest",
    unit: "s",
    fold: "most",
    of: ticks("max_lifetime"),
  },
  {
    key: "malloc_time",
    words: "time in malloc",
    unit: "s",
    fold: "sum",
    of: spent("sampled_ticks", "sampled_calls", "count"),
  },
  {
    key: "free_time",
    words: "time in free",
    unit: "s",
    fold: "sum",
    of: spent("sampled_free_ticks", "sampled_frees", "frees"),
  },
];

export function metricOf(key: string): Metric {
  return METRICS.find((one) => one.key === key) ?? METRICS[0]!;
}

/** Whether parts of it add up to a whole, so that shares and flame graphs make sense. */
export function isSum(metric: Metric): boolean {
  return metric.fold === "sum";
}

/** Of one line or function, which `place` stands for. */
export interface Entry {
  place: number;
  own: number;
  total: number;
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

  add(at: number, value: number, weight: number): void {
    if (this.fold === "least") this.a[at] = this.any[at] ? Math.min(this.a[at]!, value) : value;
    else if (this.fold === "most") this.a[at] = Math.max(this.a[at]!, value);
    else this.a[at]! += value;
    this.b[at]! += weight;
    this.any[at] = 1;
  }

  at(k: number): number {
    return this.fold === "mean" ? (this.b[k]! > 0 ? this.a[k]! / this.b[k]! : 0) : this.a[k]!;
  }
}

export class HeapModel {
  readonly asker: Int32Array; // of each node, the place that has asked
  readonly children: number[][];
  readonly roots: number[] = [];
  private readonly entriesOf = new Map<string, Entry[]>();
  private readonly totalsOf = new Map<string, Float64Array>();

  constructor(readonly page: HeapPage) {
    const { parent, location: place } = page.nodes;
    const handsOn = page.locations.is_allocator_frame;
    this.asker = new Int32Array(parent.length);
    this.children = parent.map(() => []);
    const told = new Uint8Array(parent.length); // somebody on the stack does not merely hand on
    parent.forEach((caller, node) => {
      if (caller >= 0) this.children[caller]!.push(node);
      else this.roots.push(node);
      const own = place[node]!;
      told[node] = !handsOn[own] || (caller >= 0 && told[caller]) ? 1 : 0;
      this.asker[node] = handsOn[own] && caller >= 0 && told[caller] ? this.asker[caller]! : own;
    });
  }

  /** Whether blocks were asked for, or given up, right at this node. */
  isUsed(metric: Metric, node: number): boolean {
    const { count, frees, reallocated, leaked_count } = this.page.nodes;
    if (metric.fold === "mean") return metric.by!(this.page, node) > 0;
    if (metric.key === "least" || metric.key === "most") return count[node]! > 0;
    if (metric.fold !== "sum") return count[node]! > leaked_count[node]!;
    return count[node]! + frees[node]! + reallocated[node]! > 0;
  }

  /** Of all functions or lines that have any, the largest own figure first. */
  entries(metric: Metric, group: Group): Entry[] {
    const key = `${metric.key} ${group}`;
    let found = this.entriesOf.get(key);
    if (!found) {
      found = metric.fold === "peak" ? this.peaks(group) : this.folded(metric, group);
      found = found
        .filter((one) => one.own > 0 || one.total > 0)
        .sort((x, y) => y.own - x.own || y.total - x.total);
      this.entriesOf.set(key, found);
    }
    return found;
  }

  /** Of each function that has any of its own, the line where most of it is. */
  busiest(metric: Metric): Map<number, number> {
    const found = new Map<number, number>();
    for (const { place, own } of this.entries(metric, "line")) {
      const of = this.page.locations.function_id[place]!;
      if (own > 0 && !found.has(of)) found.set(of, place);
    }
    return found;
  }

  private peaks(group: Group): Entry[] {
    const {
      function_id,
      exclusive_peak,
      inclusive_peak,
      function_exclusive_peak,
      function_inclusive_peak,
    } = this.page.locations;
    return function_id.flatMap((function_, place) => {
      if (group === "line")
        return [{ place, own: exclusive_peak[place]!, total: inclusive_peak[place]! }];
      return function_ === place
        ? [{ place, own: function_exclusive_peak[place]!, total: function_inclusive_peak[place]! }]
        : [];
    });
  }

  private folded(metric: Metric, group: Group): Entry[] {
    const { parent, location: place } = this.page.nodes;
    const key = this.groupKey(group);
    const size = this.page.locations.function_id.length;
    const own = new Folded(size, metric.fold);
    const total = new Folded(size, metric.fold);
    const seen = new Int32Array(size).fill(-1);
    for (let node = 0; node < parent.length; node += 1) {
      if (!this.isUsed(metric, node)) continue;
      const value = metric.of(this.page, node);
      const weight = metric.by?.(this.page, node) ?? 0;
      own.add(key(this.asker[node]!), value, weight);
      for (let at = node; at >= 0; at = parent[at]!) {
        const of = key(place[at]!);
        if (seen[of] === node) continue;
        seen[of] = node;
        total.add(of, value, weight);
      }
    }
    return Array.from({ length: size }, (_, at) => ({
      place: at,
      own: own.at(at),
      total: total.at(at),
    }));
  }

  groupKey(group: Group): (place: number) => number {
    const first = this.page.locations.function_id;
    return group === "line" ? (place) => place : (place) => first[place]!;
  }

  /** Of each node with all below it. */
  totals(metric: Metric): Float64Array {
    let found = this.totalsOf.get(metric.key);
    if (!found) {
      const { parent, inclusive_peak } = this.page.nodes;
      const folded = new Folded(parent.length, metric.fold);
      const sums = metric.fold === "sum";
      if (metric.fold === "peak") {
        found = Float64Array.from(inclusive_peak);
      } else {
        for (let node = 0; node < parent.length; node += 1) {
          if (!this.isUsed(metric, node)) continue;
          const value = metric.of(this.page, node);
          const weight = metric.by?.(this.page, node) ?? 0;
          if (sums) folded.add(node, value, weight);
          else for (let at = node; at >= 0; at = parent[at]!) folded.add(at, value, weight);
        }
        found = Float64Array.from(parent, (_, node) => folded.at(node));
        if (sums)
          for (let node = parent.length - 1; node >= 0; node -= 1)
            if (parent[node]! >= 0) found[parent[node]!]! += found[node]!;
      }
      this.totalsOf.set(metric.key, found);
    }
    return found;
  }

  /** The places from the outermost caller to this node. */
  stack(node: number): number[] {
    const found: number[] = [];
    for (let at = node; at >= 0; at = this.page.nodes.parent[at]!)
      found.push(this.page.nodes.location[at]!);
    return found.reverse();
  }

  /** Stacks with a figure of their own that pass through a place (of this line, or of its function); any if none. */
  stacks(
    metric: Metric,
    through: number | undefined,
    group: Group,
    ownOnly: boolean,
  ): { node: number; value: number }[] {
    const { parent, location: place } = this.page.nodes;
    const key = this.groupKey(group);
    const wanted = through === undefined ? -1 : key(through);
    const inside = new Uint8Array(parent.length); // the place is on the stack
    const found: { node: number; value: number }[] = [];
    for (let node = 0; node < parent.length; node += 1) {
      const caller = parent[node]!;
      inside[node] =
        wanted < 0 || key(place[node]!) === wanted || (caller >= 0 && inside[caller]) ? 1 : 0;
      if (
        !inside[node] ||
        !this.isUsed(metric, node) ||
        (ownOnly && wanted >= 0 && key(this.asker[node]!) !== wanted)
      )
        continue;
      const weight = metric.by?.(this.page, node) ?? 1;
      const value = weight > 0 ? metric.of(this.page, node) / (metric.by ? weight : 1) : 0;
      if (value > 0) found.push({ node, value });
    }
    return found.sort((x, y) => y.value - x.value);
  }

  functionName(place: number): string {
    return shortName(this.page.locations.function[place]!);
  }

  /** "solver.cpp:42", or the object where no source is known. */
  source(place: number): string {
    const { file, line, module } = this.page.locations;
    const name = basename(file[place]!);
    return name ? `${name}:${line[place]}` : basename(module[place]!);
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
