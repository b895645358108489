// Bandwidth of parallel I/O (IOR) over transfer size or nodes: write, local and remote read, stock and accelerated.

import { useMemo, useState } from "preact/hooks";

import { Curves } from "../charts/Curves";
import { exactSize } from "../data/format";
import { panelsOf, valuesOf, type Figure } from "../data/storage";
import { Choice } from "./Choice";

type Scale = "log" | "linear";

export function StorageIor({ figures }: { figures: Figure[] }) {
  const { nodes, sizes, ranks } = useMemo(() => {
    const numbers = (key: string) => valuesOf(figures, key).map(Number);
    return { nodes: numbers("nodes"), sizes: numbers("transfer"), ranks: numbers("ranks") };
  }, [figures]);
  const [axis, setAxis] = useState<"transfer" | "nodes">(
    nodes.length > sizes.length ? "nodes" : "transfer",
  );
  const [fixedValues, setFixedValues] = useState<Record<string, number>>({});
  const [scale, setScale] = useState<Scale>("linear");
  const other = axis === "transfer" ? "nodes" : "transfer";
  const others = axis === "transfer" ? nodes : sizes;
  const chosen = fixedValues[other] ?? others.at(-1)!;
  const panels = useMemo(
    () => panelsOf(figures, axis, { [other]: chosen }),
    [figures, axis, other, chosen],
  );
  const valueText = (value: number) => (other === "transfer" ? exactSize(value) : String(value));
  const fixed =
    other === "transfer"
      ? `Transfers of ${valueText(chosen)}. `
      : `${chosen} node${chosen === 1 ? "" : "s"}, ${ranks.join(" or ")} ranks. `;
  return (
    <section id="storage-ior">
      <h2>Parallel I/O</h2>
      <div class="controls">
        {nodes.length > 1 && sizes.length > 1 && (
          <Choice<"transfer" | "nodes">
            label="Over"
            value={axis}
            options={[
              ["transfer", "transfer size"],
              ["nodes", "nodes"],
            ]}
            onChange={setAxis}
          />
        )}
        {others.length > 1 && (
          <Choice
            label={other === "transfer" ? "Transfer size" : "Nodes"}
            value={String(chosen)}
            options={others.map((value) => [String(value), valueText(value)])}
            onChange={(value) => setFixedValues({ ...fixedValues, [other]: Number(value) })}
          />
        )}
        <Choice<Scale>
          label="Scale"
          value={scale}
          options={[
            ["linear", "linear"],
            ["log", "logarithmic"],
          ]}
          onChange={setScale}
        />
        <p class="soft">
          {others.length === 1 ? fixed : ""}
          Bytes of all ranks over the longest rank's time from opening to closing; medians over all
          rounds.
        </p>
      </div>
      <div class="charts">
        {panels.map(({ key, title, curves }) => (
          <Curves
            key={key}
            title={title}
            label={`${title}: bandwidth over ${axis === "transfer" ? "transfer size" : "nodes"} for ${curves.map(({ name }) => name).join(", ")}; the values are in the table of measurements.`}
            unit="B/s"
            logarithmic={scale === "log"}
            curves={curves}
            sizeName={axis === "transfer" ? "transfer size" : "nodes"}
            sizeText={axis === "transfer" ? exactSize : wholeNumber}
          />
        ))}
      </div>
    </section>
  );
}

const wholeNumber = (value: number) => (Number.isInteger(value) ? String(value) : "");
