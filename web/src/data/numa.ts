// A NUMA profile as the model of its views: matrices of threads' nodes by pages' nodes, and their remote shares.

import type { NumaCells, NumaObject, NumaPage, NumaProfile, NumaThread } from "./numaProfile";
import { NUMA_METRICS } from "./numaProfile";
import { ProfileModel, type Metric } from "./profile";

export const UNKNOWN_NODE = -1;

/** The sums of a matrix: local, remote, and with an unknown node. */
export interface Split {
  local: number;
  remote: number;
  unknown: number;
  total: number;
}

export class NumaModel extends ProfileModel {
  readonly profile: NumaProfile;
  /** Whether accesses were counted; else amounts are bytes that were touched first. */
  readonly isExact: boolean;

  constructor(readonly page: NumaPage) {
    super(page.profile.tree, page.sources, page.source_problems, NUMA_METRICS);
    this.profile = page.profile;
    this.isExact = page.profile.accesses !== null;
  }

  /** The metrics that this profile has figures for. */
  override get metrics(): Metric[] {
    return super.metrics.filter((metric) => this.total(metric) > 0);
  }

  get unit(): string {
    return this.isExact ? "1" : "B";
  }

  get matrix(): NumaCells {
    return this.profile.accesses ?? this.profile.touched;
  }

  counts(owner: NumaObject | NumaThread): NumaCells {
    return this.isExact
      ? (owner.accesses ?? { thread_node: [], page_node: [], count: [] })
      : owner.touched;
  }

  /** The nodes' numbers, and that of the unknown one last. */
  get nodes(): number[] {
    return [...this.profile.nodes.map((node) => node.id), UNKNOWN_NODE];
  }
}

export function split(cells: NumaCells): Split {
  const sums: Split = { local: 0, remote: 0, unknown: 0, total: 0 };
  cells.count.forEach((count, k) => {
    const thread = cells.thread_node[k]!;
    const page = cells.page_node[k]!;
    if (thread === UNKNOWN_NODE || page === UNKNOWN_NODE) sums.unknown += count;
    else if (thread === page) sums.local += count;
    else sums.remote += count;
    sums.total += count;
  });
  return sums;
}

/** The remote share of accesses whose nodes are known; undefined if none are known. */
export function remoteShare(cells: NumaCells): number | undefined {
  const { local, remote } = split(cells);
  return local + remote > 0 ? remote / (local + remote) : undefined;
}

/** The count of a cell. */
export function cell(cells: NumaCells, thread: number, page: number): number {
  return cells.count.reduce(
    (sum, count, k) =>
      cells.thread_node[k] === thread && cells.page_node[k] === page ? sum + count : sum,
    0,
  );
}

/** Counts by node of the thread, in the order of ``nodes``. */
export function byThreadNode(cells: NumaCells, nodes: number[]): number[] {
  return nodes.map((node) =>
    cells.count.reduce((sum, count, k) => (cells.thread_node[k] === node ? sum + count : sum), 0),
  );
}

export function nodeName(node: number): string {
  return node === UNKNOWN_NODE ? "unknown" : `node ${node}`;
}

/** A share as a percentage: "47.6 %", "0 %"; a dash for an unknown share. */
export function sharePercent(part: number | null | undefined): string {
  if (part === null || part === undefined) return "–";
  if (part > 0 && part < 0.001) return "< 0.1 %";
  return `${(100 * part).toFixed(1).replace(/\.0$/, "")} %`;
}
