// Figures of hosts and devices as bars with their limits, lateness of paced work as a distribution, and memory
// bandwidth between NUMA nodes. Bars are plain elements: they print, zoom and work with screen readers.

import { useState } from "preact/hooks";

import { HeatMap } from "../charts/HeatMap";
import type { Bar, BarGroup, Distribution } from "../data/figures";
import { quantity } from "../data/format";
import type { Matrix } from "../data/matrix";
import { Bins } from "./Bins";
import { Choice } from "./Choice";

interface Props {
  groups: BarGroup[];
  distributions: Distribution[];
  numa: Matrix[];
}

export function Figures({ groups, distributions, numa }: Props) {
  return (
    <section id="figures">
      <h2>What hosts and devices reach</h2>
      {groups.map((group) => (
        <Bars key={group.key} group={group} />
      ))}
      {numa.length > 0 && <Numa matrices={numa} />}
      {distributions.length > 0 && <Distributions distributions={distributions} />}
    </section>
  );
}

function Bars({ group }: { group: BarGroup }) {
  const ends = [
    ...group.bars.map((bar) => Math.max(bar.value, bar.high ?? 0)),
    ...group.limits.map(({ value }) => value),
  ];
  const scale = 100 / (1.05 * Math.max(...ends));
  return (
    <figure class="bars">
      <figcaption>{group.title}</figcaption>
      <div class="bars-plot" role="table" aria-label={group.title}>
        {group.bars.map((bar) => (
          <BarRow key={bar.label} bar={bar} group={group} scale={scale} />
        ))}
      </div>
      <p class="soft bars-legend">
        <span>
          <i class="bars-bar" /> median
        </span>
        {group.bars.some((bar) => bar.isSlow) && (
          <span>
            <i class="bars-bar slow" /> slow: misses a limit, or a finding names it
          </span>
        )}
        {group.bars.some((bar) => bar.low !== undefined) && (
          <span>
            <i class="bars-spread" /> 5th to 95th percentile
          </span>
        )}
        {group.limits.map(({ value, atLeast }) => (
          <span key={value}>
            <i class="bars-limit" /> required: {atLeast ? "at least" : "at most"}{" "}
            {quantity(value, group.unit)}
          </span>
        ))}
      </p>
    </figure>
  );
}

function BarRow({ bar, group, scale }: { bar: Bar; group: BarGroup; scale: number }) {
  const position = (value: number) => `${value * scale}%`;
  return (
    <div class="bars-row" role="row">
      <span role="rowheader">
        {bar.isSlow && <span class="bars-mark">slow </span>}
        {bar.label}
      </span>
      <span class="bars-track" aria-hidden="true">
        <span
          class={`bars-bar${bar.isSlow ? " slow" : ""}`}
          style={{ width: position(bar.value) }}
        />
        {bar.low !== undefined && bar.high !== undefined && (
          <span
            class="bars-spread"
            style={{ left: position(bar.low), width: position(bar.high - bar.low) }}
            title={`5th to 95th percentile: ${quantity(bar.low, group.unit)} to ${quantity(bar.high, group.unit)}`}
          />
        )}
        {bar.limits.map(({ value }) => (
          <span
            key={value}
            class="bars-limit"
            style={{ left: position(value) }}
            title={`required: ${quantity(value, group.unit)}`}
          />
        ))}
      </span>
      <span class="numeric" role="cell">
        {quantity(bar.value, group.unit)}
      </span>
    </div>
  );
}

function Numa({ matrices }: { matrices: Matrix[] }) {
  const [key, setKey] = useState(matrices[0]!.key);
  const matrix = matrices.find((candidate) => candidate.key === key) ?? matrices[0]!;
  return (
    <figure>
      <figcaption>Memory bandwidth between NUMA nodes</figcaption>
      <div class="controls">
        <Choice
          label="Host"
          value={matrix.key}
          options={matrices.map((item) => [
            item.key,
            `${item.params["host"]}: ${item.params["parameters"]}`,
          ])}
          onChange={setKey}
        />
        <p class="soft">
          Cores in rows, memory in columns; the colour is the deviation from the median.
        </p>
      </div>
      <HeatMap
        matrix={matrix}
        marks={NO_MARKS}
        label="Memory bandwidth from the cores of each NUMA node to the memory of each."
      />
    </figure>
  );
}

const NO_MARKS = { rows: new Map<string, string>(), columns: new Map<string, string>() };

function Distributions({ distributions }: { distributions: Distribution[] }) {
  const [key, setKey] = useState(distributions[0]!.key);
  const selected = distributions.find((candidate) => candidate.key === key) ?? distributions[0]!;
  return (
    <figure class="distribution">
      <figcaption>{distributions.length === 1 ? selected.title : "Distribution"}</figcaption>
      {distributions.length > 1 && (
        <div class="controls">
          <Choice
            label="Measurement"
            value={key}
            options={distributions.map((item) => [item.key, item.title])}
            onChange={setKey}
          />
        </div>
      )}
      <Bins
        title={`Distribution of ${selected.title}`}
        counts={selected.histogram.counts}
        name={(k) => binName(selected.histogram.edges, k, selected.unit)}
        share={share}
      />
    </figure>
  );
}

function binName(edges: number[], bin: number, unit: string): string {
  const [low, high] = [edges[bin], edges[bin + 1]];
  if (!low || low <= 0) return `under ${quantity(high, unit)}`;
  return high === undefined || high >= 1e300
    ? `${quantity(low, unit)} and more`
    : `${quantity(low, unit)} – ${quantity(high, unit)}`;
}

/** A share as a percentage; a small share is never shown as 0 %. */
function share(part: number): string {
  if (part === 0) return "";
  return part < 0.0001 ? "< 0.01 %" : `${(100 * part).toFixed(part < 0.01 ? 2 : 1)} %`;
}
