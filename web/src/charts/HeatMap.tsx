// An interactive pair matrix: hover or move with the arrow keys to read a pair, drag a rectangle to zoom in,
// double-click or press Escape to zoom out. ECharts' heat map makes an object for each cell: 262,144 objects for
// 512 x 512 hosts, and 4096 x 4096 would not fit into memory.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { percent, quantity } from "../data/format";
import { deviation, type Matrix } from "../data/matrix";
import {
  binSize,
  drawMatrix,
  layout,
  fullView,
  worstIn,
  type Cell,
  type Geometry,
  type Marks,
  type View,
} from "./drawMatrix";
import { useTheme } from "./theme";

interface Props {
  matrix: Matrix;
  marks: Marks;
  /** Describes the map for screen readers. */
  label: string;
}

interface Point {
  x: number;
  y: number;
}

/** A bin under the cursor: its first row and column, how many it spans, and its worst pair. */
interface Hover {
  row: number;
  column: number;
  rows: number;
  columns: number;
  worst: Cell | undefined;
}

const MIN_DRAG = 6; // CSS pixels; a shorter movement is a click
const WORSE = -0.05; // a pair with a lower deviation from the median is marked as worse

export function HeatMap({ matrix, marks, label }: Props) {
  const theme = useTheme();
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [available, setAvailable] = useState(0);
  const [view, setView] = useState<View>(() => fullView(matrix));
  const [hover, setHover] = useState<Hover | undefined>();
  const [drag, setDrag] = useState<{ from: Point; to: Point } | undefined>();

  useLayoutEffect(() => {
    const watcher = new ResizeObserver(() => setAvailable(box.current!.clientWidth));
    watcher.observe(box.current!);
    setAvailable(box.current!.clientWidth);
    return () => watcher.disconnect();
  }, []);
  // Another matrix of the same hosts keeps the window that the reader chose.
  const shape = `${matrix.rows.length} x ${matrix.columns.length}`;
  useEffect(() => setView(fullView(matrix)), [shape]);
  const fits = view.r1 <= matrix.rows.length && view.c1 <= matrix.columns.length;
  const visible = fits ? view : fullView(matrix);

  const geometry = available > 0 ? layout(matrix, visible, available) : undefined;
  useLayoutEffect(() => {
    if (geometry) drawMatrix(canvas.current!, matrix, visible, geometry, marks);
  }, [matrix, visible, available, marks, theme]);

  const isWhole =
    visible.r1 - visible.r0 === matrix.rows.length &&
    visible.c1 - visible.c0 === matrix.columns.length;
  const showAll = () => {
    setView(fullView(matrix));
    setHover(undefined);
  };

  const onMove = (event: PointerEvent) => {
    const point = { x: event.offsetX, y: event.offsetY };
    if (drag) setDrag({ from: drag.from, to: point });
    setHover(hoverAt(matrix, visible, geometry!, point));
  };
  const onUp = () => {
    if (drag && Math.hypot(drag.to.x - drag.from.x, drag.to.y - drag.from.y) > MIN_DRAG) {
      setView(viewOfDrag(visible, geometry!, drag.from, drag.to));
      setHover(undefined);
    }
    setDrag(undefined);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape") showAll();
    const step = STEPS[event.key];
    if (!step || !geometry) return;
    event.preventDefault();
    setHover((current) => moveHover(matrix, visible, geometry, current, step));
  };

  return (
    <div class="heatmap" ref={box}>
      <div class="heatmap-plot">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="img"
          aria-label={`${label} Arrow keys read the pairs.`}
          onPointerMove={onMove}
          onPointerLeave={() => setHover(undefined)}
          onPointerDown={(event: PointerEvent) => {
            const point = { x: event.offsetX, y: event.offsetY };
            setDrag({ from: point, to: point });
          }}
          onPointerUp={onUp}
          onDblClick={showAll}
          onKeyDown={onKey}
          onBlur={() => setHover(undefined)}
        />
        {geometry && hover && <Outline view={visible} geometry={geometry} hover={hover} />}
        {drag && <Selection from={drag.from} to={drag.to} />}
        {geometry && hover && (
          <Tip matrix={matrix} view={visible} geometry={geometry} hover={hover} />
        )}
      </div>
      {!isWhole && (
        <button type="button" onClick={showAll}>
          Show all {matrix.rows.length} × {matrix.columns.length}
        </button>
      )}
    </div>
  );
}

const STEPS: Record<string, Point> = {
  ArrowLeft: { x: -1, y: 0 },
  ArrowRight: { x: 1, y: 0 },
  ArrowUp: { x: 0, y: -1 },
  ArrowDown: { x: 0, y: 1 },
};

function bins(view: View, geometry: Geometry): { rows: number; columns: number } {
  return {
    rows: binSize(view.r1 - view.r0, geometry.plotHeight),
    columns: binSize(view.c1 - view.c0, geometry.plotWidth),
  };
}

function hoverOfCell(
  matrix: Matrix,
  view: View,
  geometry: Geometry,
  row: number,
  column: number,
): Hover {
  const bin = bins(view, geometry);
  const r = row - ((row - view.r0) % bin.rows);
  const c = column - ((column - view.c0) % bin.columns);
  return {
    row: r,
    column: c,
    rows: Math.min(bin.rows, view.r1 - r),
    columns: Math.min(bin.columns, view.c1 - c),
    worst: worstIn(matrix, view, r, c, bin.rows, bin.columns),
  };
}

function cellAt(view: View, geometry: Geometry, point: Point): { row: number; column: number } {
  return {
    row:
      view.r0 + Math.floor(((point.y - geometry.top) / geometry.plotHeight) * (view.r1 - view.r0)),
    column:
      view.c0 + Math.floor(((point.x - geometry.left) / geometry.plotWidth) * (view.c1 - view.c0)),
  };
}

function hoverAt(matrix: Matrix, view: View, geometry: Geometry, point: Point): Hover | undefined {
  const { row, column } = cellAt(view, geometry, point);
  const inside = row >= view.r0 && row < view.r1 && column >= view.c0 && column < view.c1;
  return inside ? hoverOfCell(matrix, view, geometry, row, column) : undefined;
}

function moveHover(
  matrix: Matrix,
  view: View,
  geometry: Geometry,
  current: Hover | undefined,
  step: Point,
): Hover {
  if (!current) return hoverOfCell(matrix, view, geometry, view.r0, view.c0);
  const bin = bins(view, geometry);
  const row = Math.max(view.r0, Math.min(view.r1 - 1, current.row + step.y * bin.rows));
  const column = Math.max(view.c0, Math.min(view.c1 - 1, current.column + step.x * bin.columns));
  return hoverOfCell(matrix, view, geometry, row, column);
}

function viewOfDrag(view: View, geometry: Geometry, from: Point, to: Point): View {
  const a = cellAt(view, geometry, from);
  const b = cellAt(view, geometry, to);
  const clamp = (low: number, value: number, high: number) => Math.max(low, Math.min(high, value));
  return {
    r0: clamp(view.r0, Math.min(a.row, b.row), view.r1 - 1),
    r1: clamp(view.r0 + 1, Math.max(a.row, b.row) + 1, view.r1),
    c0: clamp(view.c0, Math.min(a.column, b.column), view.c1 - 1),
    c1: clamp(view.c0 + 1, Math.max(a.column, b.column) + 1, view.c1),
  };
}

function box(view: View, geometry: Geometry, hover: Hover) {
  const cellWidth = geometry.plotWidth / (view.c1 - view.c0);
  const cellHeight = geometry.plotHeight / (view.r1 - view.r0);
  return {
    left: geometry.left + (hover.column - view.c0) * cellWidth,
    top: geometry.top + (hover.row - view.r0) * cellHeight,
    width: hover.columns * cellWidth,
    height: hover.rows * cellHeight,
  };
}

function pixels(style: Record<string, number>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(style).map(([property, value]) => [property, `${value}px`]),
  );
}

function Outline(props: { view: View; geometry: Geometry; hover: Hover }) {
  return (
    <div class="heatmap-outline" style={pixels(box(props.view, props.geometry, props.hover))} />
  );
}

function Selection({ from, to }: { from: Point; to: Point }) {
  return (
    <div
      class="heatmap-selection"
      style={pixels({
        left: Math.min(from.x, to.x),
        top: Math.min(from.y, to.y),
        width: Math.abs(to.x - from.x),
        height: Math.abs(to.y - from.y),
      })}
    />
  );
}

function Tip({
  matrix,
  view,
  geometry,
  hover,
}: {
  matrix: Matrix;
  view: View;
  geometry: Geometry;
  hover: Hover;
}) {
  const point = box(view, geometry, hover);
  const onRight = point.left > geometry.width / 2;
  const side: Record<string, number> = onRight
    ? { right: geometry.width - point.left + 8 }
    : { left: point.left + point.width + 8 };
  const pair = hover.worst ?? hover;
  const bad = hover.worst !== undefined && deviation(matrix, hover.worst.value) < WORSE;
  const many = hover.rows * hover.columns > 1;
  return (
    <div class="heatmap-tip" role="status" style={pixels({ top: point.top, ...side })}>
      <strong>
        {matrix.rows[pair.row]} → {matrix.columns[pair.column]}
      </strong>
      {hover.worst ? (
        <>
          <span class="value">{quantity(hover.worst.value, matrix.unit)}</span>
          <span class={bad ? "bad" : undefined}>
            {bad && "▼ "}
            {percent(hover.worst.value / matrix.median - 1)} against the median
          </span>
          {many && <span class="soft">the worst of {hover.rows * hover.columns} pairs here</span>}
        </>
      ) : (
        <span>not measured</span>
      )}
    </div>
  );
}
