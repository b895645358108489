// A heap profile as the report's page reads it, and its metrics. Generated from python/assay/records/heap.py by
// "python -m assay.records.generate": change them there, never this file.

import type { Metric, Source, SourceProblem, Tree } from "./profileTypes";

export interface HeapCalls {
  count: number;
  seconds: number;
}

/**
 * Pages that hold live blocks, at the moment when resident memory exceeded live bytes most. ``resident`` leaves
 * out pages of files and of shared memory (a trace of heaptrack includes them). ``filled``: numbers of pages by the
 * tenth that is in use. ``pin_bytes``: the empty bytes of the pages that each allocation site's blocks keep resident
 * (``pin_site`` is its line's first location).
 */
export interface HeapFragmentation {
  seconds: number;
  resident: number;
  live: number;
  page_bytes: number;
  pages: number;
  filled: number[];
  pin_site: number[];
  pin_bytes: number[];
  pin_blocks: number[];
}

/**
 * Blocks by log2 of their size, and by log2 of their lifetime in 16 ticks; each list begins with its first
 * logarithm.
 */
export interface HeapHistograms {
  sizes: number[];
  lifetimes: number[];
}

/**
 * Bytes of the variables of one object: initialised (.data), zero at the start (.bss), and of each thread.
 */
export interface HeapObject {
  path: string;
  data: number;
  bss: number;
  tls: number;
  variables: number;
  resident: number | null;
}

/**
 * One line of the report's embedded data.
 */
export interface HeapPage {
  kind: "heap";
  title: string;
  problems: string[];
  ranks: HeapRank[];
  sources: Record<string, Source>;
  source_problems: SourceProblem[];
  left_out: number;
  profile: HeapProfile;
}

/**
 * Blocks that a runtime library keeps for itself until the process ends: no leak of the program.
 */
export interface HeapPool {
  name: string;
  bytes: number;
  count: number;
}

export interface HeapProcess {
  pid: number;
  parent: number;
  program: string;
  rank: string;
  seconds: number;
  complete: boolean;
  detached: boolean;
  attached_after: number | null;
  at_least: number;
  sample: number;
}

export interface HeapProfile {
  process: HeapProcess;
  trace: HeapTrace;
  totals: HeapTotals;
  pools: HeapPool[];
  tick: number;
  threads: HeapThread[];
  timeline: HeapTimeline;
  sizes: number[];
  frequent_size: number[];
  frequent_count: number[];
  lifetimes: number[][];
  touches: HeapTouches | null;
  fragmentation: HeapFragmentation | null;
  objects: HeapObject[];
  variables: HeapVariable[];
  histograms: Record<string, HeapHistograms>;
  tree: Tree;
}

/**
 * One rank of a merged profile. ``outlier``: the names of the totals in which it is an outlier.
 */
export interface HeapRank {
  name: string;
  pid: number;
  peak: number;
  bytes: number;
  count: number;
  leaked: number;
  seconds: number;
  outlier: string[];
}

/**
 * ``deepest`` and the fields after it describe the thread's stack, sampled at its allocations and frees. ``depth``:
 * the maximum within each step of the timeline, in bytes, 0 without a sample. ``deepest_site``: the line that
 * allocated or freed where the stack was deepest. ``resident``: at the thread's end, 0 if unknown.
 */
export interface HeapThread {
  thread: number;
  name: string;
  bytes: number;
  first: number;
  last: number;
  foreign_frees: number;
  calls: Record<string, HeapCalls>;
  deepest: number;
  deepest_seconds: number;
  deepest_site: number;
  resident: number;
  depth: number[];
}

/**
 * ``live`` is the maximum within each step of ``step`` seconds; ``count`` and ``bytes`` are the allocations in it.
 * The last three are samples of the whole process.
 */
export interface HeapTimeline {
  start: number;
  step: number;
  live: number[];
  count: number[];
  bytes: number[];
  seconds: number[];
  virtual: number[];
  resident: number[];
}

/**
 * ``count`` and ``bytes``: of all allocated blocks. ``unknown_frees``: frees of blocks whose allocation was not
 * recorded. ``peak``: most bytes live at once, in ``peak_count`` blocks. ``leaked``: bytes that were not freed,
 * without those of ``HeapProfile.pools``. ``mapped``: the program's own mmap calls.
 */
export interface HeapTotals {
  count: number;
  bytes: number;
  frees: number;
  unknown_frees: number;
  peak: number;
  peak_count: number;
  peak_seconds: number;
  leaked: number;
  leaked_count: number;
  mapped: number;
  mapped_bytes: number;
}

/**
 * First touches, one page fault each: by the line that touched, by the allocation site of the block (``site``:
 * its line's first location; ``site_with_huge``: the faults that would remain with huge pages), and by thread.
 * ``outside`` counts those outside of blocks: stacks, variables, code.
 */
export interface HeapTouches {
  outside: number;
  line_function: string[];
  line_file: string[];
  line: number[];
  line_pages: number[];
  site: number[];
  site_pages: number[];
  site_with_huge: number[];
  thread: number[];
  thread_pages: number[];
}

export interface HeapTrace {
  imported_from: string;
  bytes: number;
  events: number;
  lost_events: number;
  damaged_bytes: number;
  unreadable_chunks: number;
  missing_objects: string[];
  unsupported_python: string;
  cut_off: boolean;
  lost_faults: number;
  unrecorded: string[];
}

export interface HeapVariable {
  name: string;
  object: string;
  bytes: number;
  per_thread: boolean;
  file: string;
  line: number;
  resident: number | null;
}

export const HEAP_METRICS: Metric[] = [
  {
    key: "bytes",
    label: "allocated",
    unit: "B",
    fold: "sum",
    listed: true,
  },
  {
    key: "count",
    label: "allocations",
    unit: "1",
    fold: "sum",
    listed: true,
  },
  {
    key: "peak",
    label: "peak",
    unit: "B",
    fold: "peak",
  },
  {
    key: "at_peak",
    label: "live at the peak",
    unit: "B",
    fold: "sum",
    listed: true,
  },
  {
    key: "leaked",
    label: "not freed",
    unit: "B",
    fold: "sum",
    listed: true,
  },
  {
    key: "leaked_count",
    label: "blocks not freed",
    unit: "1",
    fold: "sum",
  },
  {
    key: "pooled",
    label: "kept by runtime libraries",
    unit: "B",
    fold: "sum",
  },
  {
    key: "temporary",
    label: "freed before the next allocation",
    unit: "1",
    fold: "sum",
    listed: true,
  },
  {
    key: "reallocated",
    label: "reallocations",
    unit: "1",
    fold: "sum",
    listed: true,
  },
  {
    key: "foreign_reallocations",
    label: "reallocations of others' blocks",
    unit: "1",
    fold: "sum",
    shown: false,
  },
  {
    key: "new_blocks",
    label: "blocks that replace none of this stack",
    unit: "1",
    fold: "sum",
    shown: false,
  },
  {
    key: "steps",
    label: "reallocations a block",
    unit: "1",
    fold: "mean",
    dividend: "reallocated",
    divisor: "new_blocks",
    shown: false,
  },
  {
    key: "frees",
    label: "frees made here",
    unit: "1",
    fold: "sum",
  },
  {
    key: "freed",
    label: "blocks freed",
    unit: "1",
    fold: "sum",
    shown: false,
  },
  {
    key: "mean_size",
    label: "size, mean",
    unit: "B",
    fold: "mean",
    dividend: "bytes",
    divisor: "count",
  },
  {
    key: "min_size",
    label: "size, least",
    unit: "B",
    fold: "least",
    known_by: "count",
  },
  {
    key: "max_size",
    label: "size, largest",
    unit: "B",
    fold: "most",
  },
  {
    key: "lifetimes",
    label: "lifetimes, added up",
    unit: "s",
    fold: "sum",
    shown: false,
  },
  {
    key: "lifetime",
    label: "lifetime, mean",
    unit: "s",
    fold: "mean",
    dividend: "lifetimes",
    divisor: "freed",
  },
  {
    key: "min_lifetime",
    label: "lifetime, shortest",
    unit: "s",
    fold: "least",
    known_by: "freed",
  },
  {
    key: "max_lifetime",
    label: "lifetime, longest",
    unit: "s",
    fold: "most",
  },
  {
    key: "malloc_time",
    label: "time in malloc",
    unit: "s",
    fold: "sum",
  },
  {
    key: "free_time",
    label: "time in free",
    unit: "s",
    fold: "sum",
  },
];
