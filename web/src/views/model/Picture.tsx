// The picture of the platform: hosts in their cabinets, and the capacities of each level. The opacity of a host's
// square is its up rate relative to the fastest host. A capacity that was never the limit is shown with "≥", an
// unknown one as "?". Several limits that each explain a figure are named below it.

import { quantity } from "../../data/format";
import type { Cabinet, Host, Platform } from "../../data/model";
import { shortened } from "../../data/names";
import type { Capacity } from "../../data/records";

const WIDTH = 236;
const SQUARE = 14;
const COLUMNS = 14;
const TEXT = 16; // from one line to the next

export function Picture({ platform }: { platform: Platform }) {
  const { cabinets } = platform;
  const columns = Math.min(4, cabinets.length);
  const rows = Math.ceil(cabinets.length / columns);
  const tallest = Math.max(...cabinets.map((cabinet) => Math.ceil(cabinet.hosts.length / COLUMNS)));
  const several = cabinets.length > 1;
  const most = Math.max(6, ...cabinets.map((cabinet) => linesOf(cabinet, several).length));
  const height = 38 + most * TEXT + tallest * SQUARE;
  const fastest = Math.max(
    ...cabinets.flatMap((cabinet) => cabinet.hosts.map((host) => host.up?.value ?? 0)),
  );
  const full = columns * (WIDTH + 16) - 16;
  const between = `between cabinets: ${formatCapacity(platform.backbone)} ${alternatives(platform.backbone)}`;
  const trunkLines = wrapped(between.trim(), full - 20, 13);
  const top = several ? 32 + TEXT * trunkLines.length : 4;
  return (
    <svg
      class="platform"
      style={{ maxWidth: columns * (WIDTH + 16) }}
      viewBox={`0 0 ${columns * (WIDTH + 16)} ${top + rows * (height + 24)}`}
      role="img"
      aria-label={describe(platform)}
    >
      {several && (
        <g>
          <rect
            x={0}
            y={4}
            width={full}
            height={8 + TEXT * trunkLines.length}
            rx={4}
            class="trunk"
          />
          {trunkLines.map((line, index) => (
            <text key={index} x={10} y={21 + index * TEXT}>
              {line}
            </text>
          ))}
        </g>
      )}
      {cabinets.map((cabinet, index) => (
        <Box
          key={cabinet.name}
          cabinet={cabinet}
          x={(index % columns) * (WIDTH + 16)}
          y={top + Math.floor(index / columns) * (height + 24)}
          height={height}
          fastest={fastest}
          trunk={several}
        />
      ))}
    </svg>
  );
}

interface BoxProps {
  cabinet: Cabinet;
  x: number;
  y: number;
  height: number;
  fastest: number;
  trunk: boolean;
}

function Box({ cabinet, x, y, height, fastest, trunk }: BoxProps) {
  const lines = linesOf(cabinet, trunk);
  return (
    <g transform={`translate(${x} ${y})`}>
      {trunk && (
        <line
          x1={WIDTH / 2}
          x2={WIDTH / 2}
          y1={-20}
          y2={0}
          class={cabinet.up?.state === "measured" ? "link" : "link open"}
        />
      )}
      <rect width={WIDTH} height={height} rx={6} class="cabinet" />
      <text x={10} y={18} class="name">
        <title>{cabinet.name}</title>
        {shortened(cabinet.name, 20)} ({cabinet.hosts.length}{" "}
        {cabinet.hosts.length === 1 ? "host" : "hosts"})
      </text>
      {lines.map((line, index) => (
        <text key={index} x={10} y={36 + index * TEXT} class="small">
          {line}
        </text>
      ))}
      {cabinet.hosts.map((host, index) => (
        <rect
          key={host.name}
          x={10 + (index % COLUMNS) * (SQUARE + 1)}
          y={
            height -
            8 -
            SQUARE * Math.ceil(cabinet.hosts.length / COLUMNS) +
            Math.floor(index / COLUMNS) * SQUARE
          }
          width={SQUARE - 2}
          height={SQUARE - 2}
          rx={2}
          class={host.up?.value ? "host" : "host unknown"}
          fill-opacity={host.up?.value ? 0.25 + 0.75 * (host.up.value / fastest) : 0}
        >
          <title>
            {[
              `${host.name}: up ${formatCapacity(host.up)} ${alternatives(host.up)}`,
              `down ${formatCapacity(host.down)} ${alternatives(host.down)}`,
              `both ways ${formatCapacity(host.limiter)} ${alternatives(host.limiter)}`,
            ]
              .map((part) => part.trim())
              .join(", ")}
          </title>
        </rect>
      ))}
    </g>
  );
}

/** The lines of text in a cabinet's box; ``trunk``: there are links to other cabinets. */
function linesOf(cabinet: Cabinet, trunk: boolean): string[] {
  const line = (name: string, capacity: Capacity | undefined) => {
    const limits = alternatives(capacity);
    return [`${name}: ${formatCapacity(capacity)}`, ...(limits ? [limits] : [])];
  };
  return [
    ...(trunk ? line("to the others", cabinet.up) : []),
    ...(trunk ? line("from the others", cabinet.down) : []),
    ...(trunk && cabinet.limiter ? line("both", cabinet.limiter) : []),
    ...line("inside", cabinet.inside),
    `a host: up ${range(cabinet.hosts, "up")}, down ${range(cabinet.hosts, "down")}`,
    `a host both ways: ${range(cabinet.hosts, "limiter")}`,
  ].flatMap((text) => wrapped(text, WIDTH - 20, 11));
}

const CHARACTER = 0.56; // mean width over the size of the font, in px

/** The text in lines of at most ``width`` px; a word that is longer alone has its end alone. */
function wrapped(text: string, width: number, size: number): string[] {
  const length = Math.floor(width / (CHARACTER * size));
  const lines: string[] = [];
  for (const word of text.trim().split(" ")) {
    const last = lines.at(-1);
    const piece = shortened(word, length);
    if (last !== undefined && last.length + 1 + piece.length <= length)
      lines[lines.length - 1] = `${last} ${piece}`;
    else lines.push(piece);
  }
  return lines;
}

/** "(up link of a or down link of b)": the limits that each explain a figure; empty where there is one. */
function alternatives(capacity: Capacity | undefined): string {
  const limits = capacity?.explanations ?? [];
  return limits.length > 1 ? `(${limits.join(" or ")})` : "";
}

/** A capacity with its unit; "≥" where only a lower bound is known, "?" without a value. */
export function formatCapacity(capacity: Capacity | undefined): string {
  if (capacity?.value === undefined || capacity.value === null) return "?";
  return `${capacity.state === "at_least" ? "\u2265 " : ""}${quantity(capacity.value, capacity.unit)}`;
}

/** The capacity of similar hosts, else the range from the least to the largest. */
function range(hosts: readonly Host[], direction: "up" | "down" | "limiter"): string {
  const capacities = hosts
    .map((host) => host[direction])
    .filter((capacity): capacity is Capacity => typeof capacity?.value === "number");
  if (capacities.length === 0) return "?";
  const sorted = capacities.sort((a, b) => a.value! - b.value!);
  const [least, most] = [sorted[0]!, sorted[sorted.length - 1]!];
  if (most.value! <= least.value! * 1.03)
    return formatCapacity(sorted[Math.floor(sorted.length / 2)]);
  return `${formatCapacity(least)} to ${formatCapacity(most)}`;
}

function describe({ cabinets, backbone }: Platform): string {
  const each = cabinets.map(
    (cabinet) =>
      `${cabinet.name} with ${cabinet.hosts.length} hosts, to the others ${formatCapacity(cabinet.up)}`,
  );
  return `The platform: ${each.join("; ")}; between cabinets ${formatCapacity(backbone)}. The table below has the figures.`;
}
