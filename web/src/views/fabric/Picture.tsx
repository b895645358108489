// The switches of a fabric by level, leaf switches at the bottom. All cables between two switches are one line: grey
// where no direction carries two flows in the chosen step, else coloured by the fullest of them.

import type { SharedLink, Switch } from "../../data/fabric";

const WIDTH = 960;
const ROW = 130; // between levels
const BOX = { width: 64, height: 30 };

interface Props {
  rows: Switch[][];
  links: SharedLink[];
  cable: [string, string] | null;
  onCable: (cable: [string, string] | null) => void;
}

interface Place {
  x: number;
  y: number;
}

export function Picture({ rows, links, cable, onCable }: Props) {
  const height = rows.length * ROW;
  const places = placed(rows, height);
  const loads = fullest(links);
  const cables = rows.flat().flatMap((lower) =>
    lower.above.flatMap((name) => {
      const [from, to] = [places.get(lower.name), places.get(name)];
      return from && to ? [{ ends: [lower.name, name] as [string, string], from, to }] : [];
    }),
  );
  const ordered = cables
    .map((line) => ({ ...line, load: loads.get(key(...line.ends)) ?? 1 }))
    .sort((a, b) => a.load - b.load); // the loaded ones on top
  return (
    <svg
      class="fabric"
      viewBox={`0 0 ${WIDTH} ${height}`}
      role="group"
      aria-label="Switches by level"
    >
      {ordered.map(({ ends, from, to, load }) => (
        <Cable
          key={key(...ends)}
          {...{ ends, from, to, load }}
          isChosen={cable !== null && key(...cable) === key(...ends)}
          onCable={onCable}
        />
      ))}
      {rows.flat().map((item) => (
        <Box key={item.name} item={item} place={places.get(item.name)!} room={roomOf(rows, item)} />
      ))}
    </svg>
  );
}

interface CableProps {
  ends: [string, string];
  from: Place;
  to: Place;
  load: number;
  isChosen: boolean;
  onCable: (cable: [string, string] | null) => void;
}

function Cable({ ends, from, to, load, isChosen, onCable }: CableProps) {
  const position = { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
  if (load < 2) return <line class="free" {...position} />;
  const choose = () => onCable(isChosen ? null : ends);
  return (
    <line
      class={`shared load-${Math.min(load, 4)}${isChosen ? " chosen" : ""}`}
      {...position}
      tabindex={0}
      role="button"
      aria-pressed={isChosen}
      aria-label={`${ends[0]} and ${ends[1]}: ${load} flows on one link`}
      onClick={choose}
      onKeyDown={(event) => (event.key === "Enter" || event.key === " ") && choose()}
    />
  );
}

function Box({ item, place, room }: { item: Switch; place: Place; room: number }) {
  const width = Math.min(BOX.width, room - 4);
  const isNamed = width > 40;
  return (
    <g transform={`translate(${place.x} ${place.y})`}>
      <title>{`${item.name}${item.hosts ? `, ${item.hosts} hosts` : ""}`}</title>
      <rect
        class="switch"
        x={-width / 2}
        y={-BOX.height / 2}
        width={width}
        height={BOX.height}
        rx={4}
      />
      {isNamed && (
        <text y={4} text-anchor="middle">
          {short(item.name)}
        </text>
      )}
      {item.hosts > 0 && isNamed && (
        <text class="small" y={BOX.height / 2 + 15} text-anchor="middle">
          {item.hosts} hosts
        </text>
      )}
    </g>
  );
}

function placed(rows: Switch[][], height: number): Map<string, Place> {
  const places = new Map<string, Place>();
  rows.forEach((row, level) =>
    row.forEach(({ name }, k) =>
      places.set(name, {
        x: ((k + 0.5) * WIDTH) / row.length,
        y: height - (level + 0.5) * ROW,
      }),
    ),
  );
  return places;
}

/** The load of the fullest link between two switches, by both names. */
function fullest(links: SharedLink[]): Map<string, number> {
  const loads = new Map<string, number>();
  for (const { from, to, load } of links)
    loads.set(key(from, to), Math.max(load, loads.get(key(from, to)) ?? 0));
  return loads;
}

function key(one: string, other: string): string {
  return JSON.stringify([one, other].sort());
}

function roomOf(rows: Switch[][], item: Switch): number {
  return WIDTH / rows[item.level]!.length;
}

function short(name: string): string {
  return name.length > 9 ? `${name.slice(0, 8)}…` : name;
}
