// Variables that are there from beginning to end: by object, and each of the largest.

import { useMemo } from "preact/hooks";

import { quantity } from "../../data/format";
import { basename, shortName } from "../../data/heap";
import type { HeapObject, HeapVariable } from "../../data/heapPage";
import { Table, type Column } from "../Table";
import type { ViewProps } from "./props";

export function Variables({ model }: ViewProps) {
  const { objects, variables, threads } = model.page;
  const size = (one: HeapObject) => one.data + one.bss + one.tls;
  const most = Math.max(1, ...objects.map(size));
  const parts: [keyof HeapObject & ("data" | "bss" | "tls"), string][] = [
    ["data", "initialised"],
    ["bss", "zero at the start"],
    ["tls", "of each thread"],
  ];
  const columns = useMemo(
    (): Column<HeapVariable>[] => [
      {
        id: "bytes",
        header: "size",
        numeric: true,
        value: (one) => one.bytes,
        show: (one) => quantity(one.bytes, "B"),
      },
      {
        id: "resident",
        header: "in memory",
        numeric: true,
        value: (one) => one.resident ?? undefined,
        show: (one) => (one.resident === null ? "–" : quantity(one.resident, "B")),
      },
      {
        id: "name",
        header: "variable",
        value: (one) => one.name,
        show: (one) => <code title={one.name}>{shortName(one.name)}</code>,
      },
      {
        id: "kind",
        header: "",
        value: (one) => (one.per_thread ? 1 : 0),
        show: (one) => (one.per_thread ? `one for each of ${threads.length} threads` : ""),
      },
      {
        id: "at",
        header: "at",
        value: (one) => one.file || one.object,
        show: (one) => (
          <span title={one.file || one.object}>
            {one.file ? `${basename(one.file)}:${one.line}` : basename(one.object)}
          </span>
        ),
      },
    ],
    [threads.length],
  );
  return (
    <>
      <p class="legend">
        {parts.map(([part, words], k) => (
          <span key={part}>
            <i class={`part-${k}`} /> {words}
          </span>
        ))}
      </p>
      <div class="bars-plot" role="table" aria-label="Variables by object">
        {objects.slice(0, 20).map((one) => (
          <div class="bars-row" role="row" key={one.path}>
            <span role="rowheader" title={one.path}>
              {basename(one.path)}
            </span>
            <span class="bars-track stacked" aria-hidden="true">
              {parts.map(([part, words], k) => (
                <span
                  key={part}
                  class={`part-${k}`}
                  style={{ width: `${(95 * one[part]) / most}%` }}
                  title={`${words}: ${quantity(one[part], "B")}`}
                />
              ))}
            </span>
            <span class="numeric" role="cell">
              {quantity(size(one), "B")}{" "}
              {one.resident !== null && <small>{quantity(one.resident, "B")} in memory</small>}
            </span>
          </div>
        ))}
      </div>
      <Table caption="The largest variables" columns={columns} rows={variables} />
    </>
  );
}
