// The section of pair matrices: the heat map, its scale, suspects, the worst pairs, and the choice of measurement,
// operation and size.

import { useMemo, useState } from "preact/hooks";

import { HeatMap } from "../charts/HeatMap";
import { cellScale, scaleRange, type Marks } from "../charts/drawMatrix";
import { exactSize, formatParameters, percent, quantity } from "../data/format";
import { sideMedian, worstPairs, type Matrix } from "../data/matrix";
import type { Finding } from "../data/records";
import { Choice } from "./Choice";

const MAX_ROWS = 8; // of the tables of suspects and of worst pairs

interface Props {
  matrices: Matrix[];
  omitted: number; // matrices without values, since they are too large for the report
  findings: Finding[];
}

export function PairMatrices({ matrices, omitted, findings }: Props) {
  const [key, setKey] = useState(() => startingMatrix(matrices).key);
  const matrix = matrices.find((candidate) => candidate.key === key) ?? matrices[0]!;
  const marks = useMemo(() => marksOf(findings), [findings]);
  const { prefix } = cellScale(matrix);
  const unit = matrix.unit === "1" ? "" : `, figures in ${prefix}${matrix.unit}`;
  return (
    <section id="pairs">
      <h2>Pair matrix</h2>
      <div class="controls">
        <Selectors matrices={matrices} matrix={matrix} onChange={setKey} />
      </div>
      <p class="soft">
        Each row sends to each column{unit}; the colour is the deviation from the median pair,{" "}
        {quantity(matrix.median, matrix.unit)}. {matrix.measured.toLocaleString("en")} pairs
        measured. Hover or use the arrow keys to read a pair; drag to zoom in, Escape to zoom out.
        {omitted > 0 &&
          ` ${omitted} more matrices are too large for this file; records.jsonl has them.`}
      </p>
      <div class="matrix">
        <HeatMap
          matrix={matrix}
          marks={marks}
          label={`Pair matrix of ${matrix.rows.length} by ${matrix.columns.length} hosts; the worst pairs are listed beside it.`}
        />
        <aside>
          <Scale matrix={matrix} />
          <Suspects matrix={matrix} marks={marks} />
          <Worst matrix={matrix} />
        </aside>
      </div>
    </section>
  );
}

/** The matrix that is shown first: that of the largest size of the first operation. */
function startingMatrix(matrices: Matrix[]): Matrix {
  const first = matrices[0]!;
  return matrices
    .filter(
      (m) =>
        m.name === first.name && m.metric === first.metric && m.params["op"] === first.params["op"],
    )
    .reduce(
      (best, m) => (Number(m.params["size"]) > Number(best.params["size"]) ? m : best),
      first,
    );
}

/** The values by which a reader chooses a matrix. Other parameters are part of the measurement's name. */
function facets(matrix: Matrix): [measurement: string, op: string, size: string] {
  const { op = "", size = "", ...rest } = matrix.params;
  const others = formatParameters(rest);
  return [
    `${matrix.name} ${matrix.metric}${others ? ` (${others})` : ""}`,
    String(op),
    String(size),
  ];
}

interface SelectorsProps {
  matrices: Matrix[];
  matrix: Matrix;
  onChange: (key: string) => void;
}

function Selectors({ matrices, matrix, onChange }: SelectorsProps) {
  const selected = facets(matrix);
  const choose = (facet: number, value: string) => {
    const target = selected.map((current, index) => (index === facet ? value : current));
    const similarity = (candidate: Matrix) =>
      facets(candidate).reduce(
        (sum, current, index) => sum + (current === target[index] ? (index === facet ? 10 : 1) : 0),
        0,
      );
    const best = matrices.reduce((a, b) => (similarity(b) > similarity(a) ? b : a));
    onChange(best.key);
  };
  return (
    <>
      {["Measurement", "Operation", "Size"].map((label, facet) => {
        const values = [...new Set(matrices.map((candidate) => facets(candidate)[facet]!))].filter(
          Boolean,
        );
        if (label === "Size") values.sort((a, b) => Number(a) - Number(b));
        if (values.length === 0) return null;
        return (
          <Choice
            key={label}
            label={label}
            value={selected[facet]!}
            options={values.map((value) => [
              value,
              label === "Size" ? exactSize(Number(value)) : value,
            ])}
            onChange={(value) => choose(facet, value)}
          />
        );
      })}
    </>
  );
}

/** The hosts to mark: a slow transmit side on the row axis, a slow receive side on the column axis. */
function marksOf(findings: Finding[]): Marks {
  const marks: Marks = { rows: new Map(), columns: new Map() };
  for (const { subject, side = "none", cause } of findings) {
    if (!subject?.host) continue;
    if (side === "pair" && subject.peer) {
      marks.rows.set(subject.host, cause);
      marks.columns.set(subject.peer, cause);
      continue;
    }
    if (side !== "receive") marks.rows.set(subject.host, cause);
    if (side !== "transmit") marks.columns.set(subject.host, cause);
  }
  return marks;
}

function Scale({ matrix }: { matrix: Matrix }) {
  const range = scaleRange(matrix);
  const tick = (deviation: number) =>
    quantity(
      matrix.lowerIsBetter ? matrix.median / (1 + deviation) : matrix.median * (1 + deviation),
      matrix.unit,
    );
  return (
    <div class="scale">
      <div class="scale-bar" aria-hidden="true" />
      <div class="scale-ends">
        <span>
          {percent(-range)}
          <small>{range < 1 ? `worse: ${tick(-range)}` : "worse"}</small>
        </span>
        <span>
          median
          <small>{quantity(matrix.median, matrix.unit)}</small>
        </span>
        <span>
          {percent(range)}
          <small>better: {tick(range)}</small>
        </span>
      </div>
    </div>
  );
}

/** The table of marked hosts with the medians of both directions. */
function Suspects({ matrix, marks }: { matrix: Matrix; marks: Marks }) {
  const hosts = [...new Set([...marks.rows.keys(), ...marks.columns.keys()])].slice(0, MAX_ROWS);
  if (hosts.length === 0) return null;
  const side = (host: string, which: "row" | "column") => {
    const index = (which === "row" ? matrix.rows : matrix.columns).indexOf(host);
    if (index < 0) return "–";
    const middle = sideMedian(matrix, which, index);
    return (
      <>
        {quantity(middle, matrix.unit)}
        <small>{percent(middle / matrix.median - 1)}</small>
      </>
    );
  };
  return (
    <table class="small">
      <caption>Suspects (median over their pairs)</caption>
      <thead>
        <tr>
          <th scope="col">Host</th>
          <th scope="col" class="numeric">
            sends
          </th>
          <th scope="col" class="numeric">
            receives
          </th>
        </tr>
      </thead>
      <tbody>
        {hosts.map((host) => (
          <tr key={host}>
            <th scope="row" class="suspect">
              ▶ {host}
            </th>
            <td class="numeric">{side(host, "row")}</td>
            <td class="numeric">{side(host, "column")}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Worst({ matrix }: { matrix: Matrix }) {
  const pairs = useMemo(() => worstPairs(matrix, MAX_ROWS), [matrix]);
  return (
    <table class="small">
      <caption>Worst pairs</caption>
      <thead>
        <tr>
          <th scope="col">Pair</th>
          <th scope="col" class="numeric">
            {matrix.metric}
          </th>
          <th scope="col" class="numeric">
            vs median
          </th>
        </tr>
      </thead>
      <tbody>
        {pairs.map(({ row, column, value }) => (
          <tr key={`${row} ${column}`}>
            <td>
              {matrix.rows[row]} → {matrix.columns[column]}
            </td>
            <td class="numeric">{quantity(value, matrix.unit)}</td>
            <td class="numeric">{percent(value / matrix.median - 1)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
