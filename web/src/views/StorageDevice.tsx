// A node's local storage: bandwidth over threads and transfer sizes, as a map and as curves.

import { useMemo, useState } from "preact/hooks";

import { Curves } from "../charts/Curves";
import { HeatMap } from "../charts/HeatMap";
import { quantity } from "../data/format";
import { deviceCurves, deviceMap, type Figure } from "../data/storage";
import { Choice } from "./Choice";

const METHODS: Record<string, string> = {
  call: "calls",
  direct: "calls past the page cache",
  mmap: "copies through a mapping",
  stream: "stores past the caches",
};
const NO_MARKS = { rows: new Map<string, string>(), columns: new Map<string, string>() };

const kindOf = ({ host, params }: Figure) =>
  JSON.stringify([host, params["file_system"], params["op"], params["pattern"], params["method"]]);

function titleOf({ host, params }: Figure): string {
  return `${host}, ${params["file_system"]}: ${params["op"]}, ${params["pattern"]}, ${METHODS[String(params["method"])] ?? params["method"]}`;
}

export function StorageDevice({ figures }: { figures: Figure[] }) {
  const kinds = useMemo(() => {
    const byKind = new Map<string, Figure[]>();
    for (const figure of figures.filter(({ metric }) => metric === "bandwidth")) {
      byKind.set(kindOf(figure), [...(byKind.get(kindOf(figure)) ?? []), figure]);
    }
    return byKind;
  }, [figures]);
  const [key, setKey] = useState([...kinds.keys()][0]!);
  const selected = kinds.get(key) ?? [...kinds.values()][0]!;
  const [map, curves] = useMemo(() => [deviceMap(selected), deviceCurves(selected)], [selected]);
  const peak = selected.reduce((best, item) => (item.value > best.value ? item : best));
  return (
    <section id="storage-device">
      <h2>Local storage of a node</h2>
      <div class="controls">
        <Choice
          label="Measurement"
          value={key}
          options={[...kinds].map(([item, [first]]) => [item, titleOf(first!)])}
          onChange={setKey}
        />
        <p class="soft">
          {peak.device}: peak {quantity(peak.value, "B/s")} with {String(peak.params["threads"])}{" "}
          threads. In the map threads are in rows, transfer sizes in columns; the colour is the
          deviation from the median.
        </p>
      </div>
      <div class="charts">
        <Curves
          title="Bandwidth over transfer size"
          label={`Bandwidth over transfer size for ${curves.map(({ name }) => name).join(", ")}; the values are in the table of measurements.`}
          unit="B/s"
          logarithmic={false}
          curves={curves}
          sizeName="transfer size"
        />
        {map.rows.length * map.columns.length > 1 && (
          <HeatMap
            matrix={map}
            marks={NO_MARKS}
            label="Bandwidth by number of threads and transfer size."
          />
        )}
      </div>
    </section>
  );
}
