// The view of first touches: page faults by touching line and thread, by allocation site of the block, and how many
// would remain with huge pages.

import { useMemo } from "preact/hooks";

import type { HeapTouches } from "../../data/heapProfile";
import { basename, shortName } from "../../data/profile";
import { Table, type Column } from "../Table";
import { amountColumn, formatCountOrQuantity, share } from "../profile/Figure";
import { locationColumn } from "../profile/LocationLink";
import type { HeapViewProps } from "./props";

interface Site {
  site: number;
  pages: number;
  remaining: number;
}

interface Line {
  function: string;
  source: string;
  pages: number;
}

interface Props extends HeapViewProps {
  touches: HeapTouches;
}

export function FirstTouch({ model, select, touches }: Props) {
  const { threads } = model.profile;
  const sites = useMemo(
    () =>
      touches.site.map((site, k): Site => ({
        site,
        pages: touches.site_pages[k]!,
        remaining: touches.site_with_huge[k]!,
      })),
    [touches],
  );
  const lines = useMemo(
    () =>
      touches.line.map((line, k): Line => {
        const file = basename(touches.line_file[k]!);
        return {
          function: touches.line_function[k]!,
          source: file ? `${file}:${line}` : "",
          pages: touches.line_pages[k]!,
        };
      }),
    [touches],
  );
  const stackColumns = useMemo(
    (): Column<Site>[] => [
      amountColumn("pages", "page faults", (row) => row.pages, "1"),
      amountColumn("left", "with huge pages", (row) => row.remaining, "1"),
      locationColumn("allocated by", model, select, (row) => row.site),
    ],
    [model],
  );
  const lineColumns = useMemo(
    (): Column<Line>[] => [
      amountColumn("pages", "page faults", (row) => row.pages, "1"),
      {
        id: "function",
        header: "touched in",
        value: (row) => row.function,
        show: (row) => <span title={row.function}>{shortName(row.function)}</span>,
      },
      { id: "source", header: "source", value: (row) => row.source },
    ],
    [],
  );
  const pages = sites.reduce((sum, row) => sum + row.pages, 0);
  const remaining = sites.reduce((sum, row) => sum + row.remaining, 0);
  const most = Math.max(1, ...touches.thread_pages);
  return (
    <>
      <p>
        {model.profile.trace.lost_faults > 0 && "At least "}
        {formatCountOrQuantity(pages, "1")} pages of blocks were touched for the first time, a page
        fault each; with huge pages it would be {formatCountOrQuantity(remaining, "1")}
        {pages > 0 && ` (${share(remaining / pages) || "none"})`}. Another{" "}
        {formatCountOrQuantity(touches.outside, "1")} faults were of stacks, variables, code, the
        allocator itself and blocks that were not recorded.
      </p>
      <div class="bars-plot" role="table" aria-label="Page faults by thread">
        {touches.thread.map((thread, k) => (
          <div class="bars-row" role="row" key={thread}>
            <span role="rowheader">
              {thread} {threads.find((row) => row.thread === thread)?.name}
            </span>
            <span class="bars-track" aria-hidden="true">
              <span
                class="bars-bar"
                style={{ width: `${(95 * touches.thread_pages[k]!) / most}%` }}
              />
            </span>
            <span class="numeric" role="cell">
              {formatCountOrQuantity(touches.thread_pages[k]!, "1")}
            </span>
          </div>
        ))}
      </div>
      <Table
        caption="Page faults by allocation site of the block"
        columns={stackColumns}
        rows={sites}
      />
      <Table caption="Page faults by touching line" columns={lineColumns} rows={lines} />
    </>
  );
}
