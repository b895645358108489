// The view of static variables: their sizes by object (program or library), and the largest ones.

import { useMemo } from "preact/hooks";

import { quantity } from "../../data/format";
import { basename, shortName } from "../../data/profile";
import type { HeapObject, HeapVariable } from "../../data/heapProfile";
import { Table, type Column } from "../Table";
import { amountColumn } from "../profile/Figure";
import type { HeapViewProps } from "./props";

export function Variables({ model }: HeapViewProps) {
  const { objects, variables, threads } = model.profile;
  const size = (object: HeapObject) => object.data + object.bss + object.tls;
  const most = Math.max(1, ...objects.map(size));
  const parts: [keyof HeapObject & ("data" | "bss" | "tls"), string][] = [
    ["data", "initialised"],
    ["bss", "zero at the start"],
    ["tls", "of each thread"],
  ];
  const columns = useMemo(
    (): Column<HeapVariable>[] => [
      amountColumn("bytes", "size", (variable) => variable.bytes, "B"),
      amountColumn("resident", "in memory", (variable) => variable.resident, "B"),
      {
        id: "name",
        header: "variable",
        value: (variable) => variable.name,
        show: (variable) => <code title={variable.name}>{shortName(variable.name)}</code>,
      },
      {
        id: "kind",
        header: "",
        value: (variable) => (variable.per_thread ? 1 : 0),
        show: (variable) =>
          variable.per_thread ? `one for each of ${threads.length} threads` : "",
      },
      {
        id: "source",
        header: "source",
        value: (variable) => variable.file || variable.object,
        show: (variable) => (
          <span title={variable.file || variable.object}>
            {variable.file
              ? `${basename(variable.file)}:${variable.line}`
              : basename(variable.object)}
          </span>
        ),
      },
    ],
    [threads.length],
  );
  return (
    <>
      <p class="legend">
        {parts.map(([part, label], k) => (
          <span key={part}>
            <i class={`part-${k}`} /> {label}
          </span>
        ))}
      </p>
      <div class="bars-plot" role="table" aria-label="Variables by object">
        {objects.slice(0, 20).map((object) => (
          <div class="bars-row" role="row" key={object.path}>
            <span role="rowheader" title={object.path}>
              {basename(object.path)}
            </span>
            <span class="bars-track stacked" aria-hidden="true">
              {parts.map(([part, label], k) => (
                <span
                  key={part}
                  class={`part-${k}`}
                  style={{ width: `${(95 * object[part]) / most}%` }}
                  title={`${label}: ${quantity(object[part], "B")}`}
                />
              ))}
            </span>
            <span class="numeric" role="cell">
              {quantity(size(object), "B")}{" "}
              {object.resident !== null && (
                <small>{quantity(object.resident, "B")} in memory</small>
              )}
            </span>
          </div>
        ))}
      </div>
      <Table caption="The largest variables" columns={columns} rows={variables} />
    </>
  );
}
