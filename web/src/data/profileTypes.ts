// The parts of every profile, as the report's page reads them. Generated from python/assay/records/profile.py by
// "python -m assay.records.generate": change them there, never this file.

/**
 * Numbers, one for each row, in little-endian order. ``type``: "zero" (all are 0; no data), or unsigned integers
 * (u1, u2, u4), signed integers (i4) or floating point numbers (f4, f8) with their size in bytes.
 */
export interface Column {
  type: "f4" | "f8" | "i4" | "u1" | "u2" | "u4" | "zero";
  data: string;
}

/**
 * Lines or functions by their first location. ``exclusive`` figures are those of the group itself; ``inclusive``
 * ones add the functions that it called, where a recursive function counts once per stack.
 */
export interface Groups {
  rows: number;
  location: Column;
  exclusive: Record<string, Column>;
  inclusive: Record<string, Column>;
}

/**
 * Lines of functions. Allocations of an allocator frame (malloc, operator new, std::...) count for its caller.
 * ``function_id`` and ``line_id`` are the first location of the same function and of the same line of source.
 */
export interface Locations {
  function: string[];
  file: string[];
  line: number[];
  module: string[];
  inlined: boolean[];
  is_allocator_frame: boolean[];
  function_id: number[];
  line_id: number[];
}

/**
 * A figure of stacks, lines and functions. ``fold``: how the figures of several stacks become one: their sum, the
 * least or the largest; a peak is followed over time; a mean is the quotient of two other metrics.
 */
export interface Metric {
  key: string;
  label: string;
  unit: "1" | "B" | "s";
  fold: "least" | "mean" | "most" | "peak" | "sum";
  dividend?: string;
  divisor?: string;
  known_by?: string;
  listed?: boolean;
  shown?: boolean;
}

/**
 * The call tree, callers before their callees; ``parent`` is -1 for an outermost call. ``figures`` are those of a
 * call with everything that it calls.
 */
export interface Nodes {
  rows: number;
  parent: Column;
  location: Column;
  figures: Record<string, Column>;
}

export interface Source {
  text: string;
  changed: boolean;
}

/**
 * A source file that is not shown, or that may not be the recorded program's.
 */
export interface SourceProblem {
  file: string;
  problem: string;
  fix: string;
}

/**
 * The stacks with exclusive figures: ``node`` is the innermost call, ``site`` the location that counts as their
 * cause (the innermost one that is not an allocator frame). ``figures``: a column for each metric.
 */
export interface Stacks {
  rows: number;
  node: Column;
  site: Column;
  figures: Record<string, Column>;
}

export interface Tree {
  locations: Locations;
  nodes: Nodes;
  stacks: Stacks;
  lines: Groups;
  functions: Groups;
}
