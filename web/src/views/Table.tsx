// The table that all views use. TanStack's core sorts it. Of a long table the document contains only the rows in
// view; in print all rows, up to a limit.

import {
  constructTable,
  createSortedRowModel,
  functionalUpdate,
  rowSortingFeature,
  sortFn_alphanumeric,
  sortFn_text,
  tableFeatures,
  type ColumnDef,
  type Row,
  type SortingState,
} from "@tanstack/table-core";
import { storeReactivityBindings } from "@tanstack/table-core/store-reactivity-bindings";
import {
  elementScroll,
  observeElementOffset,
  observeElementRect,
  Virtualizer,
} from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";

import { usePrinting } from "../charts/theme";

export interface Column<T> {
  id: string;
  header: string;
  /** The value by which the column is sorted; undefined sorts last. */
  value: (row: T) => string | number | undefined;
  /** The content of a cell, if it is not the value itself. */
  show?: (row: T) => ComponentChildren;
  numeric?: boolean;
}

/** A column of figures. ``format`` makes a cell's text of its value, also where there is none. */
export function figureColumn<T, Value extends number | null | undefined>(
  id: string,
  header: string,
  value: (row: T) => Value,
  format: (value: Value) => ComponentChildren,
): Column<T> {
  return {
    id,
    header,
    numeric: true,
    value: (row) => value(row) ?? undefined,
    show: (row) => format(value(row)),
  };
}

interface Props<T> {
  caption: string;
  columns: Column<T>[];
  rows: T[];
}

const MAX_PLAIN_ROWS = 30; // of a longer table only the rows in view are rendered
const MAX_PRINTED_ROWS = 2000;
const ROW_HEIGHT = 33; // CSS pixels, as in style.css: rows of a long table do not wrap

const features = tableFeatures({
  coreReactivityFeature: storeReactivityBindings(),
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
  sortFns: { alphanumeric: sortFn_alphanumeric, text: sortFn_text },
});
type Features = typeof features;

export function Table<T extends object>({ caption, columns, rows }: Props<T>) {
  const [sorting, setSorting] = useState<SortingState>([]);
  const table = useMemo(
    () =>
      constructTable<Features, T>({
        features,
        data: rows,
        columns: columns.map((column): ColumnDef<Features, T> => ({
          id: column.id,
          accessorFn: column.value,
          sortUndefined: "last",
          sortDescFirst: false,
        })),
        state: { sorting },
        onSortingChange: (update) => setSorting(functionalUpdate(update, sorting)),
      }),
    [rows, columns, sorting],
  );
  const sorted = table.getRowModel().rows;
  const printing = usePrinting();
  const long = sorted.length > MAX_PLAIN_ROWS && !printing;
  return (
    <div
      class={long ? "table-box long" : "table-box"}
      tabIndex={0}
      role="region"
      aria-label={caption}
    >
      <table aria-rowcount={sorted.length + 1}>
        <caption>{caption}</caption>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => {
              const direction = table.getColumn(column.id)!.getIsSorted();
              return (
                <th
                  key={column.id}
                  scope="col"
                  class={column.numeric ? "numeric" : undefined}
                  aria-sort={
                    direction === "asc" ? "ascending" : direction === "desc" ? "descending" : "none"
                  }
                >
                  <button type="button" onClick={() => table.getColumn(column.id)!.toggleSorting()}>
                    {column.header}
                    <span aria-hidden="true">
                      {direction === "asc" ? " ▲" : direction === "desc" ? " ▼" : ""}
                    </span>
                  </button>
                </th>
              );
            })}
          </tr>
        </thead>
        {long ? (
          <VirtualBody rows={sorted} columns={columns} />
        ) : (
          <tbody>
            {sorted.slice(0, printing ? MAX_PRINTED_ROWS : undefined).map((row, index) => (
              <TableRow key={row.id} row={row.original} columns={columns} index={index} />
            ))}
          </tbody>
        )}
      </table>
    </div>
  );
}

function VirtualBody<T extends object>({
  rows,
  columns,
}: {
  rows: Row<Features, T>[];
  columns: Column<T>[];
}) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [, redraw] = useReducer<number, unknown>((count) => count + 1, 0);
  const options = {
    count: rows.length,
    getScrollElement: () => body.current?.closest<HTMLElement>(".table-box") ?? null,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: redraw,
  };
  const [virtualizer] = useState(() => new Virtualizer<HTMLElement, HTMLElement>(options));
  virtualizer.setOptions(options);
  useLayoutEffect(() => virtualizer._didMount(), []);
  useLayoutEffect(() => virtualizer._willUpdate());
  const items = virtualizer.getVirtualItems();
  const before = items[0]?.start ?? 0;
  const after = virtualizer.getTotalSize() - (items.at(-1)?.end ?? 0);
  return (
    <tbody ref={body}>
      <Spacer height={before} />
      {items.map(({ index }) => (
        <TableRow
          key={rows[index]!.id}
          row={rows[index]!.original}
          columns={columns}
          index={index}
        />
      ))}
      <Spacer height={after} />
    </tbody>
  );
}

function Spacer({ height }: { height: number }) {
  return height > 0 ? (
    <tr aria-hidden="true" class="spacer" style={{ height: `${height}px` }} />
  ) : null;
}

function TableRow<T>({ row, columns, index }: { row: T; columns: Column<T>[]; index: number }) {
  return (
    <tr aria-rowindex={index + 2} data-row>
      {columns.map((column) => (
        <td
          key={column.id}
          class={column.numeric ? "numeric" : undefined}
          data-label={column.header}
        >
          {column.show ? column.show(row) : (column.value(row) ?? "–")}
        </td>
      ))}
    </tr>
  );
}
