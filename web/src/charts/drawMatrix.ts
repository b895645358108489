// Draws a pair matrix on a canvas. Cells are computed as an image and scaled up, for 8 x 8 as for 4096 x 4096.
// Where there are more pairs than pixels, a pixel shows the worst of its pairs, because a mean would hide a
// single bad cable.

import { digits } from "../data/format";
import { deviation, valueAt, type Matrix } from "../data/matrix";
import { colour, ramp, rampColour, type Rgb } from "./theme";

/** The part of the matrix in view: rows r0..r1-1, columns c0..c1-1. */
export interface View {
  r0: number;
  r1: number;
  c0: number;
  c1: number;
}

export interface Geometry {
  width: number; // CSS pixels of the whole canvas
  height: number;
  left: number; // gutters of the row and column names
  top: number;
  plotWidth: number;
  plotHeight: number;
}

/** Hosts that findings name, to be marked on the axes: the text of the finding by host. */
export interface Marks {
  rows: Map<string, string>;
  columns: Map<string, string>;
}

const FONT = "12px system-ui, sans-serif";
const FONT_MARKED = "bold 12px system-ui, sans-serif";
const LARGEST_CELL = 88;
const TALLEST_CELL = 44;
const LARGEST_PLOT = 720;
const LABEL_STEP = 15; // CSS pixels that a name needs across its line
const VALUE_CELL = 38; // cells at least this wide show their figure

export function fullView(matrix: Matrix): View {
  return { r0: 0, r1: matrix.rows.length, c0: 0, c1: matrix.columns.length };
}

/** The end of the colour scale, as a relative deviation: the least round value that includes the worst pair. */
export function scaleRange(matrix: Matrix): number {
  return [0.1, 0.2, 0.5].find((range) => -matrix.worst <= range) ?? 1;
}

export function layout(matrix: Matrix, view: View, available: number): Geometry {
  const pen = document.createElement("canvas").getContext("2d")!;
  pen.font = FONT_MARKED;
  const longest = (names: string[]) =>
    names.reduce((long, name) => (name.length > long.length ? name : long), "");
  const gutter = (names: string[]) =>
    Math.min(150, Math.ceil(pen.measureText(`▶ ${longest(names)}`).width) + 8);
  const left = gutter(matrix.rows);
  const rows = view.r1 - view.r0;
  const columns = view.c1 - view.c0;
  const plotWidth = Math.max(
    120,
    Math.min(available - left - 2, LARGEST_PLOT, columns * LARGEST_CELL),
  );
  const cell = plotWidth / columns;
  const plotHeight = Math.min(LARGEST_PLOT, rows * Math.min(cell, TALLEST_CELL));
  const flat = cell >= gutter(matrix.columns);
  const top = flat ? 24 : gutter(matrix.columns);
  return {
    width: left + plotWidth + 2,
    height: top + plotHeight + 2,
    left,
    top,
    plotWidth,
    plotHeight,
  };
}

/** The number of rows (or columns) of the matrix in one pixel. */
export function binSize(count: number, pixels: number): number {
  return Math.max(1, Math.ceil(count / pixels));
}

export function drawMatrix(
  canvas: HTMLCanvasElement,
  matrix: Matrix,
  view: View,
  geometry: Geometry,
  marks: Marks,
): void {
  const density = window.devicePixelRatio || 1;
  canvas.width = Math.round(geometry.width * density);
  canvas.height = Math.round(geometry.height * density);
  canvas.style.width = `${geometry.width}px`;
  canvas.style.height = `${geometry.height}px`;
  const pen = canvas.getContext("2d")!;
  pen.scale(density, density);
  const steps = ramp();
  const range = scaleRange(matrix);
  drawCells(pen, matrix, view, geometry, steps, range);
  drawGrid(pen, view, geometry);
  drawValues(pen, matrix, view, geometry, steps, range);
  drawNames(pen, matrix.rows, view.r0, view.r1, geometry, marks.rows, "row");
  drawNames(pen, matrix.columns, view.c0, view.c1, geometry, marks.columns, "column");
}

function drawCells(
  pen: CanvasRenderingContext2D,
  matrix: Matrix,
  view: View,
  geometry: Geometry,
  steps: Rgb[],
  range: number,
): void {
  const rowBin = binSize(view.r1 - view.r0, geometry.plotHeight);
  const columnBin = binSize(view.c1 - view.c0, geometry.plotWidth);
  const width = Math.ceil((view.c1 - view.c0) / columnBin);
  const height = Math.ceil((view.r1 - view.r0) / rowBin);
  const image = new ImageData(width, height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      const worst = worstIn(
        matrix,
        view,
        view.r0 + y * rowBin,
        view.c0 + x * columnBin,
        rowBin,
        columnBin,
      );
      if (!worst) continue; // not measured: the background stays
      const [r, g, b] = rampColour(steps, deviation(matrix, worst.value), range);
      image.data.set([r, g, b, 255], (y * width + x) * 4);
    }
  }
  const cells = document.createElement("canvas");
  cells.width = width;
  cells.height = height;
  cells.getContext("2d")!.putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.fillStyle = colour("unmeasured");
  pen.fillRect(geometry.left, geometry.top, geometry.plotWidth, geometry.plotHeight);
  // The last bin may be short: the image is drawn to its full size and cut at the plot's edge.
  pen.save();
  pen.beginPath();
  pen.rect(geometry.left, geometry.top, geometry.plotWidth, geometry.plotHeight);
  pen.clip();
  const stretchX = (width * columnBin) / (view.c1 - view.c0);
  const stretchY = (height * rowBin) / (view.r1 - view.r0);
  pen.drawImage(
    cells,
    geometry.left,
    geometry.top,
    geometry.plotWidth * stretchX,
    geometry.plotHeight * stretchY,
  );
  pen.restore();
}

export interface Cell {
  row: number;
  column: number;
  value: number;
}

/** The worst measured pair of a bin that begins at (row, column); undefined where nothing was measured. */
export function worstIn(
  matrix: Matrix,
  view: View,
  row: number,
  column: number,
  rowBin: number,
  columnBin: number,
): Cell | undefined {
  const sign = matrix.lowerIsBetter ? -1 : 1;
  let worst: Cell | undefined;
  for (let r = row; r < Math.min(row + rowBin, view.r1); r += 1) {
    for (let c = column; c < Math.min(column + columnBin, view.c1); c += 1) {
      const value = valueAt(matrix, r, c);
      if (!Number.isNaN(value) && (!worst || value * sign < worst.value * sign)) {
        worst = { row: r, column: c, value };
      }
    }
  }
  return worst;
}

function drawGrid(pen: CanvasRenderingContext2D, view: View, geometry: Geometry): void {
  const rows = view.r1 - view.r0;
  const columns = view.c1 - view.c0;
  pen.strokeStyle = colour("surface");
  pen.lineWidth = 1;
  pen.beginPath();
  if (geometry.plotHeight / rows >= 8) {
    for (let k = 1; k < rows; k += 1) {
      const y = Math.round(geometry.top + (k * geometry.plotHeight) / rows) + 0.5;
      pen.moveTo(geometry.left, y);
      pen.lineTo(geometry.left + geometry.plotWidth, y);
    }
  }
  if (geometry.plotWidth / columns >= 8) {
    for (let k = 1; k < columns; k += 1) {
      const x = Math.round(geometry.left + (k * geometry.plotWidth) / columns) + 0.5;
      pen.moveTo(x, geometry.top);
      pen.lineTo(x, geometry.top + geometry.plotHeight);
    }
  }
  pen.stroke();
}

/** The unit of the figures in the cells, the same for all cells. */
export function cellScale(matrix: Matrix): { factor: number; prefix: string } {
  const steps: [number, string][] = [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
    [1, ""],
    [1e-3, "m"],
    [1e-6, "µ"],
    [1e-9, "n"],
  ];
  const [factor, prefix] = steps.find(([min]) => matrix.median >= min) ?? [1, ""];
  return { factor, prefix };
}

function drawValues(
  pen: CanvasRenderingContext2D,
  matrix: Matrix,
  view: View,
  geometry: Geometry,
  steps: Rgb[],
  range: number,
): void {
  const width = geometry.plotWidth / (view.c1 - view.c0);
  const height = geometry.plotHeight / (view.r1 - view.r0);
  if (!showsValues(view, geometry)) return;
  const { factor } = cellScale(matrix);
  pen.font = FONT;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (let r = view.r0; r < view.r1; r += 1) {
    for (let c = view.c0; c < view.c1; c += 1) {
      const value = valueAt(matrix, r, c);
      if (Number.isNaN(value)) continue;
      const [red, green, blue] = rampColour(steps, deviation(matrix, value), range);
      pen.fillStyle = 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#14171c" : "#ffffff";
      pen.fillText(
        digits(value / factor),
        geometry.left + (c - view.c0 + 0.5) * width,
        geometry.top + (r - view.r0 + 0.5) * height,
      );
    }
  }
}

function showsValues(view: View, geometry: Geometry): boolean {
  return (
    geometry.plotWidth / (view.c1 - view.c0) >= VALUE_CELL &&
    geometry.plotHeight / (view.r1 - view.r0) >= 18
  );
}

/** Draws the names along an axis: all where there is room, else every k-th; marked hosts always have their name. */
function drawNames(
  pen: CanvasRenderingContext2D,
  names: string[],
  from: number,
  to: number,
  geometry: Geometry,
  marks: Map<string, string>,
  axis: "row" | "column",
): void {
  const extent = axis === "row" ? geometry.plotHeight : geometry.plotWidth;
  const cell = extent / (to - from);
  const step = Math.max(1, Math.ceil(LABEL_STEP / cell));
  const marked = names.slice(from, to).flatMap((name, k) => (marks.has(name) ? [from + k] : []));
  const isFree = (k: number) =>
    marked.every((m) => m === k || Math.abs(m - k) * cell >= LABEL_STEP);
  const flat = axis === "row" || geometry.top === 24;
  pen.textBaseline = "middle";
  for (let k = from; k < to; k += 1) {
    const isMarked = marks.has(names[k]!);
    if (!isMarked && ((k - from) % step !== 0 || !isFree(k))) continue;
    const center = (k - from + 0.5) * cell;
    pen.font = isMarked ? FONT_MARKED : FONT;
    pen.fillStyle = colour(isMarked ? "fault" : "ink-soft");
    pen.save();
    if (axis === "row") pen.translate(geometry.left - 6, geometry.top + center);
    else pen.translate(geometry.left + center, geometry.top - (flat ? 12 : 6));
    if (!flat) pen.rotate(-Math.PI / 2);
    pen.textAlign = axis === "row" ? "right" : flat ? "center" : "left";
    const text = !isMarked
      ? names[k]!
      : axis === "row" || !flat
        ? `▶ ${names[k]}`
        : `▼ ${names[k]}`;
    pen.fillText(text, 0, 0, axis === "column" && flat ? cell : 142);
    pen.restore();
  }
}
