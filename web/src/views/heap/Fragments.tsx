// Pages that cannot be given back because a few blocks on them live on, and whose blocks those are.

import { useMemo } from "preact/hooks";

import { quantity } from "../../data/format";
import { Table, type Column } from "../Table";
import { amount, share } from "./Figure";
import type { ViewProps } from "./props";
import { locationColumn } from "./LocationLink";

interface Row {
  node: number;
  bytes: number;
  blocks: number;
}

export function Fragments({ model, select }: ViewProps) {
  const pages = model.page.fragmentation;
  const rows = useMemo(
    () =>
      (pages?.pin_node ?? [])
        .map((node, k): Row => ({
          node,
          bytes: pages!.pin_bytes[k]!,
          blocks: pages!.pin_blocks[k]!,
        }))
        .filter((row) => row.node >= 0),
    [pages],
  );
  const columns = useMemo(
    (): Column<Row>[] => [
      {
        id: "bytes",
        header: "empty bytes kept",
        numeric: true,
        value: (row) => row.bytes,
        show: (row) => amount(row.bytes, "B"),
      },
      {
        id: "blocks",
        header: "with blocks",
        numeric: true,
        value: (row) => row.blocks,
        show: (row) => amount(row.blocks, "1"),
      },
      locationColumn("allocated by", model, select, (row) => model.allocationSite[row.node]!),
    ],
    [model],
  );
  if (!pages)
    return (
      <p class="soft">
        At no moment did the process hold notably more memory than was allocated, or the trace has
        no addresses.
      </p>
    );
  const kept = pages.pages * pages.page_bytes;
  const most = Math.max(1, ...pages.filled);
  return (
    <>
      <p>
        After {quantity(pages.seconds, "s")} the process had {quantity(pages.resident, "B")} in
        memory, of which {quantity(pages.live, "B")} were in use. Blocks that were live lay on{" "}
        {amount(pages.pages, "1")} pages, {quantity(kept, "B")}:{" "}
        {quantity(Math.max(0, kept - pages.live), "B")} of these were empty and could not be given
        back. The remaining {quantity(Math.max(0, pages.resident - kept), "B")} are code, variables,
        and what the allocator keeps.
      </p>
      <div class="bars-plot" role="table" aria-label="Pages by how full they are">
        {pages.filled.map((count, k) => (
          <div class="bars-row" role="row" key={k}>
            <span role="rowheader">
              {k * 10} – {(k + 1) * 10} % in use
            </span>
            <span class="bars-track" aria-hidden="true">
              <span class="bars-bar" style={{ width: `${(95 * count) / most}%` }} />
            </span>
            <span class="numeric" role="cell">
              {amount(count, "1")} <small>{share(count / pages.pages)}</small>
            </span>
          </div>
        ))}
      </div>
      <Table caption="Who keeps them" columns={columns} rows={rows} />
    </>
  );
}
