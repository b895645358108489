// Fragmentation: pages that cannot be returned to the system because a few blocks on them are live, and the allocation
// sites of these blocks.

import { useMemo } from "preact/hooks";

import { quantity } from "../../data/format";
import { Table, type Column } from "../Table";
import type { HeapFragmentation } from "../../data/heapProfile";
import { amountColumn, formatCountOrQuantity, share } from "../profile/Figure";
import { locationColumn } from "../profile/LocationLink";
import type { HeapViewProps } from "./props";

interface Row {
  site: number;
  bytes: number;
  blocks: number;
}

interface Props extends HeapViewProps {
  pages: HeapFragmentation;
}

export function Fragments({ model, select, pages }: Props) {
  const rows = useMemo(
    () =>
      pages.pin_site.map((site, k): Row => ({
        site,
        bytes: pages.pin_bytes[k]!,
        blocks: pages.pin_blocks[k]!,
      })),
    [pages],
  );
  const columns = useMemo(
    (): Column<Row>[] => [
      amountColumn("bytes", "empty bytes on their pages", (row) => row.bytes, "B"),
      amountColumn("blocks", "live blocks", (row) => row.blocks, "1"),
      locationColumn("allocated by", model, select, (row) => row.site),
    ],
    [model],
  );
  const livePages = pages.pages * pages.page_bytes;
  const maxCount = Math.max(1, ...pages.filled);
  return (
    <>
      <p>
        After {quantity(pages.seconds, "s")} the process had {quantity(pages.resident, "B")} in
        memory (without files and shared memory), of which {quantity(pages.live, "B")} were in use.
        Live blocks lay on {formatCountOrQuantity(pages.pages, "1")} pages,{" "}
        {quantity(livePages, "B")}: {quantity(Math.max(0, livePages - pages.live), "B")} of these
        were empty and could not be returned to the system. The remaining{" "}
        {quantity(Math.max(0, pages.resident - livePages), "B")} are variables, stacks, and free
        memory that the allocator keeps.
      </p>
      <div class="bars-plot" role="table" aria-label="Pages by how full they are">
        {pages.filled.map((count, k) => (
          <div class="bars-row" role="row" key={k}>
            <span role="rowheader">
              {k * 10} – {(k + 1) * 10} % in use
            </span>
            <span class="bars-track" aria-hidden="true">
              <span class="bars-bar" style={{ width: `${(95 * count) / maxCount}%` }} />
            </span>
            <span class="numeric" role="cell">
              {formatCountOrQuantity(count, "1")} <small>{share(count / pages.pages)}</small>
            </span>
          </div>
        ))}
      </div>
      <Table
        caption="Allocation sites of the blocks on these pages"
        columns={columns}
        rows={rows}
      />
    </>
  );
}
