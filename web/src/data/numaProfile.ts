// A NUMA profile as the report's page reads it, and its metrics. Generated from python/assay/records/numa.py by
// "python -m assay.records.generate": change them there, never this file.

import type { Metric, Source, SourceProblem, Tree } from "./profileTypes";

/**
 * A view that this profile has no figures for, and the reason.
 */
export interface NumaAbsent {
  view: string;
  reason: string;
}

/**
 * Another placement of an object. ``action``: spread, bind, interleave or replicate; ``nodes``: for "spread" the
 * node of each of the object's equal parts, else the nodes to use. ``before``, ``predicted``: remote shares of the
 * object's accesses. ``assumed``: the prediction assumes an even use by all nodes. ``toucher``: the location that
 * touches it first, -1 if unknown. ``gain``: remote accesses that it saves, or bytes that it moves in a profile
 * without accesses.
 */
export interface NumaAdvice {
  object: number;
  action: string;
  nodes: number[];
  before: number;
  predicted: number;
  assumed: boolean;
  toucher: number;
  gain: number;
  fix: string;
}

/**
 * A placement that was applied to this run. ``measured`` is None where the object was not found again, or its
 * accesses were not counted.
 */
export interface NumaApplied {
  name: string;
  action: string;
  before: number;
  predicted: number;
  measured: number | null;
  assumed: boolean;
}

/**
 * ``processors`` as the kernel writes them: "0-3,8". ``nodes`` belong to the memory policy.
 */
export interface NumaBinding {
  seconds: number;
  processors: string;
  policy: string;
  nodes: number[];
}

/**
 * A matrix: a row for each pair of a thread's node and a page's node that has a count.
 */
export interface NumaCells {
  thread_node: number[];
  page_node: number[];
  count: number[];
}

/**
 * A row for each object, touching line and thread: columns. ``object`` and ``thread`` count from 0.
 */
export interface NumaFirstTouches {
  object: number[];
  location: number[];
  thread: number[];
  bytes: number[];
  policy: string[];
  huge: number[];
}

/**
 * ``memory`` in bytes, 0 if unknown. A node without processors holds memory alone.
 */
export interface NumaNode {
  id: number;
  processors: number;
  memory: number;
  distances: number[];
}

/**
 * All blocks that one stack allocated, or all memory of one kind. ``site`` is the location of the allocating line,
 * -1 for memory that has none. ``accesses`` is None where they were not counted. ``resident``: bytes by node, in the
 * order of the profile's nodes with the unknown ones last. ``parts``: by node of the thread, in the order of the
 * profile's nodes, accesses to each of sixteen equal parts; empty where they were not counted.
 */
export interface NumaObject {
  name: string;
  kind: string;
  site: number;
  bytes: number;
  blocks: number;
  accesses: NumaCells | null;
  touched: NumaCells;
  resident: number[];
  moved: number;
  parts: number[][];
}

/**
 * One line of the report's embedded data.
 */
export interface NumaPage {
  kind: "numa";
  title: string;
  ranks: NumaRank[];
  sources: Record<string, Source>;
  source_problems: SourceProblem[];
  left_out: number;
  profile: NumaProfile;
}

/**
 * ``mode``: touch, sample, gcc, llvm or qemu. ``emulated``: the number of emulated nodes, 0 for the machine's
 * own.
 */
export interface NumaProcess {
  pid: number;
  parent: number;
  program: string;
  rank: string;
  mode: string;
  emulated: number;
  page_bytes: number;
  seconds: number;
  complete: boolean;
  lost_events: number;
}

export interface NumaProfile {
  process: NumaProcess;
  problems: string[];
  nodes: NumaNode[];
  accesses: NumaCells | null;
  touched: NumaCells;
  objects: NumaObject[];
  threads: NumaThread[];
  first_touches: NumaFirstTouches;
  timeline: NumaTimeline;
  sampling: NumaSampling | null;
  advice: NumaAdvice[];
  applied: NumaApplied[];
  absent: NumaAbsent[];
  tree: Tree;
}

/**
 * One rank of a merged profile.
 */
export interface NumaRank {
  name: string;
  pid: number;
  remote_share: number | null;
  amount: number;
  seconds: number;
}

/**
 * How accesses were sampled: each count is of samples. ``attributed``: samples whose address lies in a block, a
 * mapping, a variable or a stack. ``sources``: caches and memories; near is on the thread's node.
 * ``samples_by_source``: in the order of ``sources``. ``throttled``: how often the kernel suppressed samples.
 */
export interface NumaSampling {
  events: string;
  period: number;
  samples: number;
  attributed: number;
  sources: string[];
  samples_by_source: number[];
  throttled: number;
}

/**
 * Sampled accesses, or first touches, in slices of ``width`` seconds. Empty where neither has a time. ``unknown``:
 * those of which a node is not known.
 */
export interface NumaSlices {
  seconds: number[];
  width: number;
  local: number[];
  remote: number[];
  unknown: number[];
}

/**
 * ``pinned``: bound to processors of one node all the time; None where bindings were not watched.
 */
export interface NumaThread {
  name: string;
  accesses: NumaCells | null;
  touched: NumaCells;
  pinned: boolean | null;
  bindings: NumaBinding[];
}

/**
 * Resident bytes by node, in the order of the profile's nodes with the unknown ones last.
 */
export interface NumaTimeline {
  seconds: number[];
  resident: number[][];
  slices: NumaSlices;
}

export const NUMA_METRICS: Metric[] = [
  {
    key: "remote",
    label: "remote accesses",
    unit: "1",
    fold: "sum",
    listed: true,
  },
  {
    key: "accesses",
    label: "accesses",
    unit: "1",
    fold: "sum",
    listed: true,
  },
  {
    key: "local",
    label: "local accesses",
    unit: "1",
    fold: "sum",
  },
  {
    key: "unknown",
    label: "accesses with an unknown node",
    unit: "1",
    fold: "sum",
  },
  {
    key: "unpinned",
    label: "accesses by threads that no node is bound to",
    unit: "1",
    fold: "sum",
  },
  {
    key: "reads",
    label: "loads",
    unit: "1",
    fold: "sum",
  },
  {
    key: "writes",
    label: "stores",
    unit: "1",
    fold: "sum",
  },
  {
    key: "used_remote",
    label: "remote accesses to blocks allocated here",
    unit: "1",
    fold: "sum",
    listed: true,
  },
  {
    key: "used",
    label: "accesses to blocks allocated here",
    unit: "1",
    fold: "sum",
  },
  {
    key: "allocated",
    label: "allocated",
    unit: "B",
    fold: "sum",
  },
  {
    key: "touched",
    label: "touched first",
    unit: "B",
    fold: "sum",
    listed: true,
  },
  {
    key: "touched_remote",
    label: "touched first, placed on another node",
    unit: "B",
    fold: "sum",
  },
];
