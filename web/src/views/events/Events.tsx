// The section of event building: throughput over time with its dips, the ledger of events and fragments, and the points
// of a search for parameters.

import { useMemo, useState } from "preact/hooks";

import { GroupedBars } from "../../charts/GroupedBars";
import { TimeLines } from "../../charts/TimeLines";
import {
  buildings,
  searchOf,
  valueText,
  type Building,
  type Search,
  type SearchPoint,
} from "../../data/events";
import { percent, quantity } from "../../data/format";
import type { Finding, Measurement } from "../../data/records";
import { Choice } from "../Choice";
import { figureColumn, Table, type Column } from "../Table";
import { amountColumn } from "../profile/Figure";

interface Props {
  measurements: Measurement[];
  findings: Finding[];
}

export function Events({ measurements, findings }: Props) {
  const built = useMemo(() => buildings(measurements, findings), [measurements, findings]);
  const search = useMemo(() => searchOf(measurements), [measurements]);
  const [key, setKey] = useState(built[0]?.key ?? "");
  const chosen = built.find((building) => building.key === key) ?? built[0];
  if (!chosen && !search) return null;
  return (
    <section id="events">
      <h2>Event building</h2>
      {chosen && built.length > 1 && (
        <div class="controls">
          <Choice
            label="Parameters"
            value={chosen.key}
            options={built.map((building) => [building.key, building.label])}
            onChange={setKey}
          />
        </div>
      )}
      {chosen && <BuildingView building={chosen} />}
      {search && <SearchView search={search} />}
    </section>
  );
}

/** How many slices of time are drawn; of a long run also how many there were. */
function slicesOf({ rates, slices }: Building): string {
  if (slices <= rates.length + 1) return `${rates.length} slices of time`;
  return `${rates.length} of ${slices} slices of time, the lowest and the highest of each stretch`;
}

function BuildingView({ building }: { building: Building }) {
  const { rates, slowest, latency, dips, deaths, ledger } = building;
  const marks = [
    ...dips.map(({ from, to, host }) => ({ from, to, name: host || "all alike" })),
    ...deaths.map(({ at, to, host, returned }) => ({
      from: at,
      to,
      name: returned ? `${host} lost, came back` : `${host} lost`,
    })),
  ];
  const lowest = rates.length > 0 ? Math.min(...rates.map(([, rate]) => rate)) : undefined;
  return (
    <>
      {rates.length > 1 && (
        <div class="charts">
          <TimeLines
            title={`Throughput over time: ${building.label}`}
            label={`Throughput of all ranks in ${slicesOf(building)}, lowest ${quantity(lowest, "B/s")}; ${deaths.length > 0 ? `${deaths.length} lost; ` : ""}${dips.length} ${dips.length === 1 ? "dip" : "dips"}.`}
            unit="B/s"
            lines={[
              { name: "all ranks", points: rates, filled: true },
              { name: "rank that received least", points: slowest, hidden: true },
            ]}
            marks={marks}
          />
          {latency.length > 1 && (
            <TimeLines
              title="Time of an event, from its assignment until it is complete (median)"
              label="The median latency of events in each slice of time."
              unit="s"
              lines={[{ name: "latency", points: latency }]}
            />
          )}
        </div>
      )}
      {ledger.length > 0 && (
        <Table caption="Ledger: what became of every fragment" columns={LEDGER} rows={ledger} />
      )}
    </>
  );
}

const LEDGER: Column<Building["ledger"][number]>[] = [
  { id: "name", header: "entry", value: ({ name }) => name },
  figureColumn(
    "count",
    "count",
    ({ count }) => count,
    (value) => value.toLocaleString("en"),
  ),
];

function SearchView({ search }: { search: Search }) {
  const { points, parameters } = search;
  const best = points[0]!;
  const columns = useMemo<Column<SearchPoint>[]>(
    () => [
      ...Object.keys(best.params).map((name) => ({
        id: name,
        header: name,
        value: ({ params }: SearchPoint) => params[name] as string | number,
        show: ({ params }: SearchPoint) => valueText(name, params[name]!),
        numeric: typeof best.params[name] === "number",
      })),
      amountColumn("value", "throughput", ({ value }) => value, "B/s"),
      figureColumn(
        "share",
        "of the best",
        ({ value }) => value / best.value,
        (value) => percent(value, false),
      ),
      { id: "times", header: "measured", value: ({ times }) => times, numeric: true },
    ],
    [best],
  );
  return (
    <>
      <h3>The search for the best parameters</h3>
      <p class="soft">
        Each chart has one parameter: the best and the median throughput of all points with that
        value. The most important parameter comes first.
      </p>
      <div class="charts">
        {parameters.map(({ name, importance, bars }) => (
          <GroupedBars
            key={name}
            title={
              importance === undefined ? name : `${name}: importance ${percent(importance, false)}`
            }
            label={`Best and median throughput at each value of ${name}.`}
            unit="B/s"
            bars={bars}
            stacked={false}
          />
        ))}
      </div>
      <Table caption="Every point that was measured" columns={columns} rows={points} />
    </>
  );
}
