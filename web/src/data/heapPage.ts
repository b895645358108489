// A heap profile as the page meets it. Generated from python/assay/records/heap_page.py by
// "python -m assay.records.generate": change the structs there, never this file.

export interface HeapCalls {
  count: number;
  seconds: number;
}

/**
 * ``filled`` counts pages by the tenth that is in use; ``pin_bytes`` is each node's share of the empty bytes.
 */
export interface HeapFragmentation {
  seconds: number;
  resident: number;
  live: number;
  page_bytes: number;
  pages: number;
  filled: number[];
  pin_node: number[];
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
 * Lines of functions. ``function_id`` is the first location of the same function. Allocations of an allocator
 * frame count for its caller. Peaks are live bytes of a line, or of its function; inclusive adds the callees.
 */
export interface HeapLocations {
  function: string[];
  file: string[];
  line: number[];
  module: string[];
  inlined: boolean[];
  is_allocator_frame: boolean[];
  function_id: number[];
  exclusive_peak: number[];
  inclusive_peak: number[];
  function_exclusive_peak: number[];
  function_inclusive_peak: number[];
}

/**
 * The call tree, parents before children; ``parent`` is -1 for an outermost node. Lifetimes and sampled ticks are
 * in ticks. ``sampled_calls`` is the number of calls that ``sampled_ticks`` is the time of.
 */
export interface HeapNodes {
  parent: number[];
  location: number[];
  count: number[];
  bytes: number[];
  exclusive_peak: number[];
  inclusive_peak: number[];
  at_peak: number[];
  leaked: number[];
  leaked_count: number[];
  temporary: number[];
  reallocated: number[];
  frees: number[];
  lifetime_sum: number[];
  sampled_ticks: number[];
  sampled_calls: number[];
  sampled_free_ticks: number[];
  sampled_frees: number[];
  min_size: number[];
  max_size: number[];
  min_lifetime: number[];
  max_lifetime: number[];
  foreign_reallocations: number[];
}

export interface HeapObject {
  path: string;
  data: number;
  bss: number;
  tls: number;
  variables: number;
  resident: number | null;
}

export interface HeapPage {
  kind: "heap";
  program: string;
  pid: number;
  title: string;
  seconds: number;
  complete: boolean;
  tick: number;
  problems: string[];
  totals: HeapTotals;
  ranks: HeapRank[];
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
  locations: HeapLocations;
  nodes: HeapNodes;
  histograms: Record<string, HeapHistograms>;
  sources: Record<string, HeapSource>;
  left_out: number;
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

export interface HeapSource {
  text: string;
  changed: boolean;
}

/**
 * ``depth`` is the largest size of the thread's stack within each step of the timeline, in bytes; 0: unknown.
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
  deepest_node: number;
  resident: number;
  depth: number[];
}

/**
 * ``live`` is the maximum within each step; ``count`` and ``bytes`` are the allocations in it. The last three are
 * samples of the whole process.
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

export interface HeapTotals {
  count: number;
  bytes: number;
  frees: number;
  peak: number;
  peak_count: number;
  peak_seconds: number;
  leaked: number;
  leaked_count: number;
  mapped: number;
  mapped_bytes: number;
}

/**
 * First touches, one page fault each: by the line that touched, by the node that allocated (``node_with_huge``:
 * the faults that would remain with huge pages), and by thread. ``outside`` counts those outside of blocks.
 */
export interface HeapTouches {
  outside: number;
  line_function: string[];
  line_file: string[];
  line: number[];
  line_pages: number[];
  node: number[];
  node_pages: number[];
  node_with_huge: number[];
  thread: number[];
  thread_pages: number[];
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
