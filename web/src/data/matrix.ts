// Pair matrices. Rows arrive one record at a time and are packed at once into typed arrays, because a
// matrix of 4096 hosts has 16.8 million values: as parsed JSON they would not fit, as floats they take 67 MB.

import { naturally } from "./hosts";
import type { Pairs, Scalar } from "./records";

export interface Matrix {
  key: string;
  name: string;
  metric: string;
  unit: string;
  lowerIsBetter: boolean;
  params: Record<string, Scalar>;
  rows: string[]; // the hosts that bytes come from
  columns: string[]; // the hosts that bytes go to
  values: Float32Array; // row by row; NaN where nothing was measured
  measured: number; // how many values are not NaN
  median: number;
  worst: number; // the worst deviation, see deviation()
}

/** The deviation of a value from the median: negative is worse, -0.5 is half as good (or twice as slow). */
export function deviation(matrix: Matrix, value: number): number {
  return matrix.lowerIsBetter ? matrix.median / value - 1 : value / matrix.median - 1;
}

export function valueAt(matrix: Matrix, row: number, column: number): number {
  return matrix.values[row * matrix.columns.length + column] ?? NaN;
}

interface PackedRow {
  host: string;
  columns: Uint32Array; // indices into the builder's own column numbering
  values: Float32Array;
}

/** Builds a matrix from its rows, which are added in any order. */
export class MatrixBuilder {
  private readonly rows = new Map<string, PackedRow>();
  private readonly columns = new Map<string, number>();

  constructor(
    private readonly key: string,
    private readonly first: Pairs,
  ) {}

  add(record: Pairs): void {
    const host = record.subject?.host ?? "?";
    const peers = record.peers ?? [];
    const columns = Uint32Array.from(peers, (peer) => this.columnOf(peer));
    this.rows.set(host, { host, columns, values: Float32Array.from(record.values ?? []) });
  }

  private columnOf(peer: string): number {
    const index = this.columns.get(peer);
    if (index !== undefined) return index;
    this.columns.set(peer, this.columns.size);
    return this.columns.size - 1;
  }

  /** `hosts`: the run's hosts in rank order. Other hosts of the matrix follow in natural order. */
  build(hosts: readonly string[]): Matrix {
    const rank = new Map(hosts.map((host, index) => [host, index]));
    const inOrder = (a: string, b: string) => rankOf(rank, a) - rankOf(rank, b) || naturally(a, b);
    const rows = [...this.rows.keys()].sort(inOrder);
    const columns = [...this.columns.keys()].sort(inOrder);
    const position = new Uint32Array(columns.length);
    columns.forEach((name, index) => (position[this.columns.get(name)!] = index));

    const values = new Float32Array(rows.length * columns.length).fill(NaN);
    let measured = 0;
    rows.forEach((host, row) => {
      const packed = this.rows.get(host)!;
      for (let k = 0; k < packed.values.length; k += 1) {
        values[row * columns.length + position[packed.columns[k]!]!] = packed.values[k]!;
        measured += 1;
      }
    });
    const { name, metric, unit, better, params = {} } = this.first;
    const matrix: Matrix = {
      key: this.key,
      name,
      metric,
      unit,
      lowerIsBetter: better === "lower",
      params,
      rows,
      columns,
      values,
      measured,
      median: median(values),
      worst: 0,
    };
    for (const value of values)
      matrix.worst = Math.min(matrix.worst, deviation(matrix, value) || 0);
    return matrix;
  }
}

/** The rank of a name, or of its host: "server2" of "server2:2" (its second adapter). */
function rankOf(rank: Map<string, number>, name: string): number {
  return rank.get(name) ?? rank.get(name.replace(/:[^:]*$/, "")) ?? rank.size;
}

/** The median of the numbers in `values`, NaN left aside; NaN when there are none. */
export function median(values: ArrayLike<number>): number {
  const numbers = Float32Array.from(values).filter((value) => !Number.isNaN(value));
  if (numbers.length === 0) return NaN;
  numbers.sort();
  const middle = numbers.length >> 1;
  return numbers.length % 2 ? numbers[middle]! : (numbers[middle - 1]! + numbers[middle]!) / 2;
}

export interface Pair {
  row: number;
  column: number;
  value: number;
}

/** The `count` worst pairs, worst first. */
export function worstPairs(matrix: Matrix, count: number): Pair[] {
  const width = matrix.columns.length;
  const sign = matrix.lowerIsBetter ? -1 : 1;
  const worst: Pair[] = [];
  let threshold = Infinity;
  matrix.values.forEach((value, index) => {
    if (Number.isNaN(value) || (worst.length === count && value * sign >= threshold)) return;
    worst.push({ row: Math.floor(index / width), column: index % width, value });
    worst.sort((a, b) => (a.value - b.value) * sign);
    if (worst.length > count) worst.pop();
    threshold = worst.at(-1)!.value * sign;
  });
  return worst;
}

/** The median of one row (what a host sends) or of one column (what it receives). */
export function sideMedian(matrix: Matrix, side: "row" | "column", index: number): number {
  const width = matrix.columns.length;
  if (side === "row") return median(matrix.values.subarray(index * width, (index + 1) * width));
  return median(Float32Array.from(matrix.rows, (_, row) => matrix.values[row * width + index]!));
}
