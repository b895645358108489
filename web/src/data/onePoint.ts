// Curves of a single size are no curves: a value for each, to be drawn as bars.

import type { Curve } from "../charts/Curves";

export interface OnePoint {
  size: number;
  bars: { label: string; series: number; value: number }[];
}

/** The values of curves that all have one point, at the same size; undefined for any others. */
export function onePoint(curves: readonly Curve[]): OnePoint | undefined {
  const drawn = curves.filter(({ points }) => points.length > 0);
  const sizes = new Set(drawn.flatMap(({ points }) => points.map(([size]) => size)));
  if (sizes.size !== 1) return undefined;
  return {
    size: [...sizes][0]!,
    bars: drawn.map(({ name, detail, series, points }) => ({
      label: detail ? `${name} ${detail}` : name,
      series,
      value: points[0]![1],
    })),
  };
}
