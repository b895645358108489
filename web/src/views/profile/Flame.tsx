// The view of the call tree as a flame graph (an icicle graph: callees are below their callers). The width of a box is
// its inclusive figure. A click zooms in; functions that match the search are marked.

import { useMemo, useState } from "preact/hooks";

import type { ProfileModel } from "../../data/profile";
import { formatCountOrQuantity, share } from "./Figure";
import type { ViewProps } from "./props";
import { Search } from "./Search";

const MIN_WIDTH = 0.001; // of the whole width; narrower boxes are left out
const ROW = 19; // CSS pixels

interface Box {
  node: number;
  left: number; // shares of the width
  width: number;
  depth: number;
}

export function Flame({ model, metric, select }: ViewProps) {
  const [top, setTop] = useState<number | undefined>();
  const [query, setQuery] = useState("");
  const totals = model.totals(metric);
  const total = model.total(metric) || 1;
  const boxes = useMemo(() => layOut(top, model, totals), [model, totals, top]);
  const height = boxes.reduce((deepest, box) => Math.max(deepest, box.depth + 1), 1) * ROW;
  const names = model.tree.locations.function;
  const isFound = (node: number) =>
    query !== "" && names[model.location[node]!]!.toLowerCase().includes(query.toLowerCase());
  const foundPart = useMemo(() => foundShare(boxes, isFound), [boxes, query]);
  return (
    <>
      <div class="controls">
        <Search value={query} placeholder="function" onInput={setQuery} />
        {query && <p class="soft">{share(foundPart) || "nothing"} of what is shown</p>}
        {top !== undefined && (
          <button type="button" onClick={() => setTop(undefined)}>
            Show all
          </button>
        )}
      </div>
      <div
        class="flame"
        style={{ height: `${height}px` }}
        role="img"
        aria-label={`Flame graph by: ${metric.label}`}
      >
        {boxes.map(({ node, left, width, depth }) => {
          const location = model.location[node]!;
          return (
            <div
              key={node}
              class={isFound(node) ? "found" : undefined}
              style={{
                left: `${left * 100}%`,
                width: `${width * 100}%`,
                top: `${depth * ROW}px`,
                filter: `hue-rotate(${hue(names[location]!)}deg)`,
              }}
              title={`${names[location]}\n${model.source(location)}\n${formatCountOrQuantity(totals[node]!, metric.unit)}, ${share(totals[node]! / total)} of all\ndouble-click: source`}
              onClick={() => setTop(node)}
              onDblClick={() => select({ location, group: "line" }, "source")}
            >
              {width > 0.02 ? model.functionName(location) : ""}
            </div>
          );
        })}
      </div>
    </>
  );
}

function layOut(top: number | undefined, model: ProfileModel, totals: ArrayLike<number>): Box[] {
  const boxes: Box[] = [];
  let depth = 0;
  if (top !== undefined) {
    const callers: number[] = [];
    for (let caller = model.parent[top]!; caller >= 0; caller = model.parent[caller]!)
      callers.push(caller);
    for (const node of callers.reverse()) boxes.push({ node, left: 0, width: 1, depth: depth++ });
  }
  const start = top === undefined ? model.roots : [top];
  const scale =
    1 /
    Math.max(
      1e-300,
      start.reduce((sum, node) => sum + totals[node]!, 0),
    );
  const visit = (nodes: number[], from: number, level: number) => {
    let left = from;
    for (const node of [...nodes].sort((a, b) => totals[b]! - totals[a]!)) {
      const width = totals[node]! * scale;
      if (width < MIN_WIDTH) break;
      boxes.push({ node, left, width, depth: level });
      visit(model.children(node), left, level + 1);
      left += width;
    }
  };
  visit(start, 0, depth);
  return boxes;
}

/** The share of the width that matching functions take; of nested matches only the outermost counts. */
function foundShare(boxes: Box[], isFound: (node: number) => boolean): number {
  let sum = 0;
  let covered: { left: number; right: number }[] = [];
  for (const box of boxes) {
    if (!isFound(box.node)) continue;
    const middle = box.left + box.width / 2;
    if (covered.some(({ left, right }) => middle >= left && middle <= right)) continue;
    sum += box.width;
    covered = [...covered, { left: box.left, right: box.left + box.width }];
  }
  return sum;
}

/** A shade for a function's name, the same everywhere. */
function hue(name: string): number {
  let hash = 0;
  for (let k = 0; k < name.length; k += 1) hash = (hash * 31 + name.charCodeAt(k)) | 0;
  return (hash & 0x3f) - 32;
}
