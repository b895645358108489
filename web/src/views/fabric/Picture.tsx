// The picture of a fabric: switches by level, leaf switches at the bottom. A large fabric shows its parts, which can be
// opened. All cables between two items are one line, in the colour of the fullest link of either direction.

import { useMemo, useState } from "preact/hooks";

import { distinctParts, shortened } from "../../data/names";
import { viewOf, type Item, type Line } from "../../data/fabricView";
import type { Plan } from "../../data/plan";

const WIDTH = 960;
const ROW = 130; // between levels
const BOX = { width: 64, height: 30 };
const MAX_LOAD_COLOUR = 4; // flows; loads of 4 and more have the same colour

/** The cables between two switches, or two parts. */
export interface Cable {
  label: string;
  links: number[];
}

interface Props {
  plan: Plan;
  loads: Uint32Array;
  cable: Cable | null;
  onCable: (cable: Cable | null) => void;
}

interface Place {
  x: number;
  y: number;
  room: number; // to the neighbours in the row
}

export function Picture({ plan, loads, cable, onCable }: Props) {
  const [opened, setOpened] = useState<Item | null>(null);
  const view = useMemo(() => viewOf(plan, opened?.switches ?? null), [plan, opened]);
  const height = view.rows.length * ROW;
  const places = placesOf(view.rows, view.items.length, height);
  const open = (item: Item | null) => {
    setOpened(item);
    onCable(null);
  };
  const linesByLoad = view.lines
    .map((line) => ({ line, load: maxLoad(line, loads) }))
    .sort((a, b) => a.load - b.load); // so that loaded lines are on top
  const nameOf = (item: number) => view.items[item]!.name;
  const names = new Map([
    ...distinctParts(view.items.map(({ name }) => name)), // for a level of one switch
    ...view.rows
      .filter((row) => row.length > 1)
      .flatMap((row) => [...distinctParts(row.map(nameOf))]),
  ]);
  return (
    <>
      <Legend opened={opened} onWhole={() => open(null)} />
      <svg
        class="fabric"
        viewBox={`0 0 ${WIDTH} ${height}`}
        role="group"
        aria-label="Switches by level"
      >
        {linesByLoad.map(({ line, load }) => {
          const label = line.ends.map((end) => view.items[end]!.name).join(" and ");
          return (
            <CableLine
              key={label}
              label={label}
              from={places[line.ends[0]]!}
              to={places[line.ends[1]]!}
              load={load}
              isChosen={cable?.label === label}
              onChoose={() => onCable(cable?.label === label ? null : { label, links: line.links })}
            />
          );
        })}
        {view.items.map((item, k) => (
          <Box
            key={item.name}
            item={item}
            name={names.get(item.name)!}
            place={places[k]!}
            onOpen={() => open(item)}
          />
        ))}
      </svg>
    </>
  );
}

function Legend({ opened, onWhole }: { opened: Item | null; onWhole: () => void }) {
  return (
    <p class="fabric-legend soft">
      {opened && (
        <button type="button" onClick={onWhole}>
          Whole fabric
        </button>
      )}
      {opened && <span>{opened.name}</span>}
      {["no flow", "1 flow", "2 flows", "3 flows", "4 and more"].map((text, load) => (
        <span key={text}>
          <i class={`load-${load}`} />
          {text}
        </span>
      ))}
    </p>
  );
}

interface CableProps {
  label: string;
  from: Place;
  to: Place;
  load: number;
  isChosen: boolean;
  onChoose: () => void;
}

function CableLine({ label, from, to, load, isChosen, onChoose }: CableProps) {
  const position = { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
  const flows = `${load} ${load === 1 ? "flow" : "flows"} on one link`;
  return (
    <line
      class={`cable load-${Math.min(load, MAX_LOAD_COLOUR)}${isChosen ? " chosen" : ""}`}
      {...position}
      tabindex={load > 1 ? 0 : -1}
      role="button"
      aria-pressed={isChosen}
      aria-label={`${label}: ${flows}`}
      onClick={onChoose}
      onKeyDown={(event) => (event.key === "Enter" || event.key === " ") && onChoose()}
    />
  );
}

interface BoxProps {
  item: Item;
  name: string; // what tells it apart in its row; the tooltip has the whole name
  place: Place;
  onOpen: () => void;
}

function Box({ item, name, place, onOpen }: BoxProps) {
  const width = Math.min(BOX.width, place.room - 4);
  const isNamed = width > 40;
  const count = item.switches.length;
  const hosts = item.hosts > 0 ? `${item.hosts} hosts` : "";
  const title = [item.name, count > 1 ? `${count} switches` : "", hosts].filter(Boolean).join(", ");
  const part =
    count > 1
      ? {
          role: "button" as const,
          tabindex: 0,
          "aria-label": `Open ${title}`,
          onClick: onOpen,
          onKeyDown: (event: KeyboardEvent) =>
            (event.key === "Enter" || event.key === " ") && onOpen(),
        }
      : {};
  return (
    <g
      class={count > 1 ? "switch part" : "switch"}
      transform={`translate(${place.x} ${place.y})`}
      {...part}
    >
      <title>{title}</title>
      <rect x={-width / 2} y={-BOX.height / 2} width={width} height={BOX.height} rx={4} />
      {isNamed && (
        <text y={4} text-anchor="middle">
          {count > 1 ? `${count} switches` : shortened(name, 9)}
        </text>
      )}
      {hosts && isNamed && (
        <text class="small" y={BOX.height / 2 + 15} text-anchor="middle">
          {hosts}
        </text>
      )}
    </g>
  );
}

function placesOf(rows: number[][], items: number, height: number): Place[] {
  const places = new Array<Place>(items);
  rows.forEach((row, level) =>
    row.forEach((item, k) => {
      const room = WIDTH / row.length;
      places[item] = { x: (k + 0.5) * room, y: height - (level + 0.5) * ROW, room };
    }),
  );
  return places;
}

function maxLoad({ links }: Line, loads: Uint32Array): number {
  return links.reduce((most, link) => Math.max(most, loads[link]!), 0);
}
