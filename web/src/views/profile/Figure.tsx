// Figures as text, as tiles, in a column of a table, and a bar that shows a share.

import { NONE, quantity } from "../../data/format";
import { figureColumn, type Column } from "../Table";

/** A count (unit "1") as a whole number with separators; else a quantity with its unit. */
export function formatCountOrQuantity(value: number, unit: string): string {
  return unit === "1" ? Math.round(value).toLocaleString("en") : quantity(value, unit);
}

/** A column of a table: counts, or quantities of one unit. */
export function amountColumn<T>(
  id: string,
  header: string,
  value: (row: T) => number | null | undefined,
  unit: string,
): Column<T> {
  return figureColumn(id, header, value, (amount) =>
    typeof amount === "number" ? formatCountOrQuantity(amount, unit) : NONE,
  );
}

export type TileText = [label: string, value: string, detail: string];

export function Tiles({ tiles }: { tiles: TileText[] }) {
  return (
    <dl class="tiles">
      {tiles.map(([label, value, detail]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>
            {value}
            {detail && <small>{detail}</small>}
          </dd>
        </div>
      ))}
    </dl>
  );
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
