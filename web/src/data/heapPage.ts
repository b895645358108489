// A heap profile as the page meets it. Generated from python/assay/records/heap_page.py by
// "python -m assay.records.generate": change the structs there, never this file.

export interface HeapCalls {
  count: number;
  seconds: number;
}

/**
 * ``filled`` counts pages by the tenth that is in use; the pins are nodes and their part of what is empty.
 */
export interface HeapFragments {
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
 * The tree of calls, parents before children; ``parent`` is -1 for the outermost. Figures are of blocks that were
 * asked for right there; ``lifetime``, ``sampled_ticks``, ``sampled_free_ticks``, ``shortest`` and ``longest`` are
 * ticks.
 */
export interface HeapNodes {
  parent: number[];
  place: number[];
  count: number[];
  bytes: number[];
  own_peak: number[];
  total_peak: number[];
  at_peak: number[];
  leaked: number[];
  leaked_count: number[];
  temporary: number[];
  reallocated: number[];
  frees: number[];
  lifetime: number[];
  sampled_ticks: number[];
  sampled_calls: number[];
  sampled_free_ticks: number[];
  sampled_frees: number[];
  least: number[];
  most: number[];
  shortest: number[];
  longest: number[];
  foreign_reallocations: number[];
}

export interface HeapObject {
  path: string;
  data: number;
  zeroed: number;
  per_thread: number;
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
  fragments: HeapFragments | null;
  objects: HeapObject[];
  variables: HeapVariable[];
  places: HeapPlaces;
  nodes: HeapNodes;
  spreads: Record<string, HeapSpread>;
  sources: Record<string, HeapSource>;
  left_out: number;
}

/**
 * Lines of functions. ``first`` is the first place of the same function; ``hands_on`` are those whose requests
 * are their callers'. Peaks are of what a line, or its function, has asked for itself and with its callees.
 */
export interface HeapPlaces {
  function: string[];
  file: string[];
  line: number[];
  module: string[];
  inlined: boolean[];
  hands_on: boolean[];
  first: number[];
  peak_own: number[];
  peak_total: number[];
  function_peak_own: number[];
  function_peak_total: number[];
}

/**
 * One of the processes that were added up. ``outlier``: which of its figures are far from the others'.
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
 * Blocks by the logarithm to base 2 of their size, and of their lifetime in 16 ticks; each list begins with its
 * first logarithm.
 */
export interface HeapSpread {
  sizes: number[];
  lifetimes: number[];
}

/**
 * ``depth`` is how deep its own stack was, the most within each step of the timeline; 0 where it is not known.
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
 * ``live`` is the most within each step, ``count`` and ``bytes`` what was asked for in it; the last three are
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
 * First touch: pages by the line that has touched them, by the node that has asked for them (and what would be left
 * with huge pages), and by thread; ``outside`` of blocks.
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
