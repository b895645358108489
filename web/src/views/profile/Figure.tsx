// Figures as text, and a bar that shows a share.

import { quantity } from "../../data/format";

/** A count (unit "1") as a whole number with separators; else a quantity with its unit. */
export function formatCountOrQuantity(value: number, unit: string): string {
  return unit === "1" ? Math.round(value).toLocaleString("en") : quantity(value, unit);
}

export function ShareBar({ part }: { part: number }) {
  return (
    <span class="share" aria-hidden="true">
      <span style={{ width: `${Math.max(0, Math.min(1, part)) * 100}%` }} />
    </span>
  );
}

/** A share as a percentage; empty for 0, and never "0 %" for a small share. */
export function share(part: number): string {
  if (part === 0) return "";
  return part < 0.001 ? "< 0.1 %" : `${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`;
}
