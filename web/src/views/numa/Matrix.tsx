// A matrix as a table: nodes of threads by nodes of pages. Cells off the diagonal are remote.

import { cell, nodeName, sharePercent, split, UNKNOWN_NODE } from "../../data/numa";
import type { NumaCells } from "../../data/numaProfile";
import { formatCountOrQuantity } from "../profile/Figure";

interface Props {
  caption: string;
  cells: NumaCells;
  nodes: number[];
  unit: string;
}

export function Matrix({ caption, cells, nodes, unit }: Props) {
  const has = (numbers: number[], node: number) => node !== UNKNOWN_NODE || numbers.includes(node);
  const threads = nodes.filter((node) => has(cells.thread_node, node));
  const pages = nodes.filter((node) => has(cells.page_node, node));
  const { total } = split(cells);
  return (
    <div class="numa-block">
      <table class="numa-matrix">
        <caption>{caption}: nodes of threads by nodes of pages</caption>
        <thead>
          <tr>
            <th scope="col">threads on</th>
            {pages.map((page) => (
              <th key={page} scope="col" class="numeric">
                pages on {nodeName(page)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {threads.map((thread) => (
            <tr key={thread}>
              <th scope="row">{nodeName(thread)}</th>
              {pages.map((page) => {
                const count = cell(cells, thread, page);
                const part = total > 0 ? count / total : 0;
                return (
                  <td key={page} class={`numeric ${kind(thread, page)}`} style={{ "--heat": part }}>
                    {formatCountOrQuantity(count, unit)}{" "}
                    <small>{count > 0 ? sharePercent(part) : ""}</small>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function kind(thread: number, page: number): string {
  if (thread === UNKNOWN_NODE || page === UNKNOWN_NODE) return "cell-unknown";
  return thread === page ? "cell-local" : "cell-remote";
}
