// Local, remote and unknown parts of a count, as one bar.

import type { Split } from "../../data/numa";
import { formatCountOrQuantity } from "../profile/Figure";

const PARTS: [part: "local" | "remote" | "unknown", label: string][] = [
  ["local", "local"],
  ["remote", "remote"],
  ["unknown", "unknown node"],
];

export function SplitBar({ parts, most, unit }: { parts: Split; most: number; unit: string }) {
  return (
    <span class="bars-track stacked" aria-hidden="true">
      {PARTS.map(([part, label]) => (
        <span
          key={part}
          class={`numa-${part}`}
          style={{ width: `${most > 0 ? (95 * parts[part]) / most : 0}%` }}
          title={`${label}: ${formatCountOrQuantity(parts[part], unit)}`}
        />
      ))}
    </span>
  );
}

export function SplitLegend() {
  return (
    <p class="legend">
      {PARTS.map(([part, label]) => (
        <span key={part}>
          <i class={`numa-${part}`} /> {label}
        </span>
      ))}
    </p>
  );
}
