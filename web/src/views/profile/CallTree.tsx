// The view of the call tree, from the outermost function inwards, the largest figure first. The path to the largest
// figure is open at first.

import { useState } from "preact/hooks";

import { formatCountOrQuantity, share, ShareBar } from "./Figure";
import type { ViewProps } from "./props";

const MAX_CALLEES = 30; // of a node
const OPEN_SHARE = 0.5; // a callee with this share of its caller's figure is opened with the caller

export function CallTree(props: ViewProps) {
  const { model, metric } = props;
  const totals = model.totals(metric);
  const ranked = (nodes: number[]) =>
    nodes.filter((node) => totals[node]! > 0).sort((a, b) => totals[b]! - totals[a]!);
  const total = model.total(metric) || 1;
  const [open, setOpen] = useState(() =>
    hotPath(model.roots, (node) => model.children(node), totals),
  );
  const toggle = (node: number) => {
    const next = new Set(open);
    if (!next.delete(node))
      for (const opened of hotPath([node], (parent) => model.children(parent), totals))
        next.add(opened);
    setOpen(next);
  };
  const rows: { node: number; depth: number }[] = [];
  const visit = (nodes: number[], depth: number) => {
    for (const node of ranked(nodes).slice(0, MAX_CALLEES)) {
      rows.push({ node, depth });
      if (open.has(node)) visit(model.children(node), depth + 1);
    }
  };
  visit(model.roots, 0);
  return (
    <div class="calltree" role="tree" aria-label={`Call tree by: ${metric.label}`}>
      {rows.map(({ node, depth }) => {
        const location = model.location[node]!;
        const inner = ranked(model.children(node)).length;
        return (
          <div
            key={node}
            role="treeitem"
            aria-level={depth + 1}
            aria-expanded={inner ? open.has(node) : undefined}
            class="calltree-row"
          >
            <span class="numeric">{formatCountOrQuantity(totals[node]!, metric.unit)}</span>
            <ShareBar part={totals[node]! / total} />
            <small>{metric.fold === "sum" ? share(totals[node]! / total) : ""}</small>
            <span class="calltree-name" style={{ paddingLeft: `${Math.min(depth, 40) * 12}px` }}>
              <button
                type="button"
                class="fold"
                aria-label={open.has(node) ? "close" : "open"}
                disabled={!inner}
                onClick={() => toggle(node)}
              >
                {inner ? (open.has(node) ? "▾" : "▸") : "·"}
              </button>
              <button
                type="button"
                class="link"
                title={model.tree.locations.function[location]}
                onClick={() => props.select({ location, group: "line" }, "source")}
              >
                {model.functionName(location)}
              </button>{" "}
              <small>{model.source(location)}</small>
            </span>
          </div>
        );
      })}
    </div>
  );
}

/** The path from the largest of these nodes inwards, while a callee has most of its caller's figure. */
function hotPath(
  from: number[],
  children: (node: number) => number[],
  totals: ArrayLike<number>,
): Set<number> {
  const path = new Set<number>();
  let nodes = from;
  for (let caller = 0; ;) {
    const best = nodes.reduce((a, b) => (a < 0 || totals[b]! > totals[a]! ? b : a), -1);
    if (best < 0 || totals[best]! < OPEN_SHARE * caller) return path;
    path.add(best);
    caller = totals[best]!;
    nodes = children(best);
  }
}
