// Allocation sites and other memory: how much, where it lies, who uses it.

import { useMemo, useState } from "preact/hooks";

import { quantity } from "../../data/format";
import { nodeName, remoteShare, sharePercent, split } from "../../data/numa";
import type { NumaObject } from "../../data/numaProfile";
import { amount } from "../profile/Figure";
import { LocationLink } from "../profile/LocationLink";
import { Table, type Column } from "../Table";
import type { NumaViewProps } from "./props";

export function Objects({ model, select }: NumaViewProps) {
  const { objects } = model.profile;
  const [query, setQuery] = useState("");
  const matching = useMemo(() => {
    const text = query.toLowerCase();
    return objects.filter((found) => `${found.name} ${found.kind}`.toLowerCase().includes(text));
  }, [objects, query]);
  const columns = useMemo((): Column<NumaObject>[] => {
    const counts = (found: NumaObject) => split(model.counts(found));
    const number = (
      id: string,
      header: string,
      value: (found: NumaObject) => number,
      unit: string,
    ): Column<NumaObject> => ({
      id,
      header,
      numeric: true,
      value,
      show: (found) => amount(value(found), unit),
    });
    const counted = (
      id: string,
      header: string,
      value: (found: NumaObject) => number,
    ): Column<NumaObject> => ({
      id,
      header,
      numeric: true,
      value: (found) => (found.accesses ? value(found) : undefined),
      show: (found) => (found.accesses ? amount(value(found), "1") : "–"),
    });
    const resident = model.nodes
      .map((node, k) => ({ node, k }))
      .filter(({ k }) => objects.some((found) => found.resident[k]! > 0))
      .map(({ node, k }) =>
        number(`node ${node}`, `in memory, ${nodeName(node)}`, (found) => found.resident[k]!, "B"),
      );
    return [
      {
        id: "name",
        header: "allocated by",
        value: (found) => found.name,
        show: (found) =>
          found.site >= 0 ? (
            <LocationLink model={model} select={select} location={found.site} />
          ) : (
            found.name
          ),
      },
      { id: "kind", header: "kind", value: (found) => found.kind },
      {
        id: "remote",
        header: "remote",
        numeric: true,
        value: (found) => remoteShare(model.counts(found)),
        show: (found) => sharePercent(remoteShare(model.counts(found))),
      },
      ...(model.isExact
        ? [
            counted("remotes", "remote accesses", (found) => counts(found).remote),
            counted("locals", "local accesses", (found) => counts(found).local),
          ]
        : []),
      number("touched", "touched first", (found) => split(found.touched).total, "B"),
      {
        id: "bytes",
        header: "allocated",
        numeric: true,
        value: (found) => found.bytes,
        show: (found) =>
          found.blocks > 0
            ? `${quantity(found.bytes, "B")} in ${amount(found.blocks, "1")} block${found.blocks === 1 ? "" : "s"}`
            : "–",
      },
      ...resident,
      ...(objects.some((found) => found.moved > 0)
        ? [number("moved", "migrated", (found) => found.moved, "B")]
        : []),
    ];
  }, [model]);
  const used = objects.filter((found) => found.parts.length > 0).slice(0, 12);
  return (
    <>
      <label class="choice">
        <span>Search</span>
        <input
          type="search"
          value={query}
          placeholder="function, file or kind"
          onInput={(event) => setQuery(event.currentTarget.value)}
        />
      </label>
      <Table caption="Objects by allocation site" columns={columns} rows={matching} />
      {used.length > 0 && (
        <>
          <h3>Which node uses which part</h3>
          <p class="soft">
            Each object's blocks in sixteen equal parts: the darker, the larger the share of the
            part's accesses that comes from this node. Objects whose parts belong to different nodes
            gain from a parallel first touch.
          </p>
          {used.map((found, k) => (
            <Parts key={k} found={found} nodes={model.profile.nodes.map((node) => node.id)} />
          ))}
        </>
      )}
    </>
  );
}

function Parts({ found, nodes }: { found: NumaObject; nodes: number[] }) {
  const sums = found.parts[0]!.map((_, part) =>
    found.parts.reduce((sum, counts) => sum + counts[part]!, 0),
  );
  return (
    <div class="numa-parts" role="table" aria-label={`Parts of ${found.name}`}>
      <span class="numa-parts-name">{found.name}</span>
      {found.parts.map((counts, row) => (
        <div role="row" key={row}>
          <span role="rowheader">{nodeName(nodes[row]!)}</span>
          {counts.map((count, part) => {
            const share = sums[part]! > 0 ? count / sums[part]! : 0;
            return (
              <span
                key={part}
                role="cell"
                class="cell"
                style={{ "--heat": share }}
                title={`part ${part + 1}: ${sharePercent(share)} of ${amount(sums[part]!, "1")} accesses`}
              />
            );
          })}
        </div>
      ))}
    </div>
  );
}
