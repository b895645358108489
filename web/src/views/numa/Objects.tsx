// The view of objects (allocation sites and other memory): their sizes, nodes and accesses.

import { useMemo, useState } from "preact/hooks";

import { quantity } from "../../data/format";
import { nodeName, remoteShare, sharePercent, split } from "../../data/numa";
import type { NumaObject } from "../../data/numaProfile";
import { amountColumn, formatCountOrQuantity } from "../profile/Figure";
import { LocationLink } from "../profile/LocationLink";
import { figureColumn, Table, type Column } from "../Table";
import { Search } from "../profile/Search";
import type { NumaViewProps } from "./props";

export function Objects({ model, select }: NumaViewProps) {
  const { objects } = model.profile;
  const [query, setQuery] = useState("");
  const matching = useMemo(() => {
    const text = query.toLowerCase();
    return objects.filter((entry) => `${entry.name} ${entry.kind}`.toLowerCase().includes(text));
  }, [objects, query]);
  const columns = useMemo((): Column<NumaObject>[] => {
    const counts = (entry: NumaObject) => split(model.counts(entry));
    const countColumn = (id: string, header: string, value: (entry: NumaObject) => number) =>
      amountColumn<NumaObject>(
        id,
        header,
        (entry) => (entry.accesses ? value(entry) : undefined),
        "1",
      );
    const resident = model.nodes
      .map((node, k) => ({ node, k }))
      .filter(({ k }) => objects.some((entry) => entry.resident[k]! > 0))
      .map(({ node, k }) =>
        amountColumn<NumaObject>(
          `node ${node}`,
          `in memory, ${nodeName(node)}`,
          (entry) => entry.resident[k]!,
          "B",
        ),
      );
    return [
      {
        id: "name",
        header: "allocated by",
        value: (entry) => entry.name,
        show: (entry) =>
          entry.site >= 0 ? (
            <LocationLink model={model} select={select} location={entry.site} />
          ) : (
            entry.name
          ),
      },
      { id: "kind", header: "kind", value: (entry) => entry.kind },
      figureColumn("remote", "remote", (entry) => remoteShare(model.counts(entry)), sharePercent),
      ...(model.isExact
        ? [
            countColumn("remotes", "remote accesses", (entry) => counts(entry).remote),
            countColumn("locals", "local accesses", (entry) => counts(entry).local),
          ]
        : []),
      amountColumn("touched", "touched first", (entry) => split(entry.touched).total, "B"),
      {
        id: "bytes",
        header: "allocated",
        numeric: true,
        value: (entry) => entry.bytes,
        show: (entry) =>
          entry.blocks > 0
            ? `${quantity(entry.bytes, "B")} in ${formatCountOrQuantity(entry.blocks, "1")} block${entry.blocks === 1 ? "" : "s"}`
            : "–",
      },
      ...resident,
      ...(objects.some((entry) => entry.moved > 0)
        ? [amountColumn<NumaObject>("moved", "migrated", (entry) => entry.moved, "B")]
        : []),
    ];
  }, [model]);
  const used = objects.filter((entry) => entry.parts.length > 0).slice(0, 12);
  return (
    <>
      <Search value={query} placeholder="function, file or kind" onInput={setQuery} />
      <Table caption="Objects by allocation site" columns={columns} rows={matching} />
      {used.length > 0 && (
        <>
          <h3>Which node uses which part</h3>
          <p class="soft">
            Each object's blocks in sixteen equal parts: the darker, the larger the share of the
            part's accesses that comes from this node. Objects whose parts belong to different nodes
            gain from a parallel first touch.
          </p>
          {used.map((entry, k) => (
            <Parts key={k} entry={entry} nodes={model.profile.nodes.map((node) => node.id)} />
          ))}
        </>
      )}
    </>
  );
}

function Parts({ entry, nodes }: { entry: NumaObject; nodes: number[] }) {
  const sums = entry.parts[0]!.map((_, index) =>
    entry.parts.reduce((sum, counts) => sum + counts[index]!, 0),
  );
  return (
    <div class="numa-parts" role="table" aria-label={`Parts of ${entry.name}`}>
      <span class="numa-parts-name">{entry.name}</span>
      {entry.parts.map((counts, row) => (
        <div role="row" key={row}>
          <span role="rowheader">{nodeName(nodes[row]!)}</span>
          {counts.map((count, index) => {
            const share = sums[index]! > 0 ? count / sums[index]! : 0;
            return (
              <span
                key={index}
                role="cell"
                class="cell"
                style={{ "--heat": share }}
                title={`part ${index + 1}: ${sharePercent(share)} of ${formatCountOrQuantity(sums[index]!, "1")} accesses`}
              />
            );
          })}
        </div>
      ))}
    </div>
  );
}
