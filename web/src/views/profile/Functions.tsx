// The table of all functions by a metric, with a search field. The column "source" shows the line of a function with the
// largest exclusive figure.

import { useMemo, useState } from "preact/hooks";

import type { Entry } from "../../data/profile";
import { Table, type Column } from "../Table";
import { amountColumn, ShareBar } from "./Figure";
import type { ViewProps } from "./props";
import { Search } from "./Search";
import { Stacks } from "./Stacks";

export function Functions({ model, metric, selection, select }: ViewProps) {
  const [query, setQuery] = useState("");
  const entries = model.entries(metric, "function");
  const matching = useMemo(() => {
    const text = query.toLowerCase();
    const { function: names, file } = model.tree.locations;
    return entries.filter(({ location }) =>
      `${names[location]} ${file[location]}`.toLowerCase().includes(text),
    );
  }, [entries, query, model]);
  const columns = useMemo((): Column<Entry>[] => {
    const largest = entries.reduce((a, entry) => Math.max(a, entry.exclusive), 0);
    const hottestLines = model.hottestLines(metric);
    const hottestLine = (entry: Entry) => hottestLines.get(entry.location) ?? entry.location;
    return [
      amountColumn("exclusive", "exclusive", (entry) => entry.exclusive, metric.unit),
      {
        id: "bar",
        header: "",
        value: (entry) => entry.exclusive,
        show: (entry) => <ShareBar part={largest ? entry.exclusive / largest : 0} />,
      },
      amountColumn("inclusive", "with callees", (entry) => entry.inclusive, metric.unit),
      {
        id: "function",
        header: "function",
        value: (entry) => model.functionName(entry.location),
        show: (entry) => (
          <button
            type="button"
            class="link"
            title={model.tree.locations.function[entry.location]}
            onClick={() => select({ location: entry.location, group: "function" })}
          >
            {model.functionName(entry.location)}
          </button>
        ),
      },
      {
        id: "source",
        header: "source",
        value: (entry) => model.source(hottestLine(entry)),
        show: (entry) => (
          <button
            type="button"
            class="link soft"
            onClick={() => select({ location: hottestLine(entry), group: "function" }, "source")}
          >
            {model.source(hottestLine(entry))}
          </button>
        ),
      },
    ];
  }, [entries, metric, model]);
  return (
    <>
      <Search value={query} placeholder="function or file" onInput={setQuery} />
      <Table caption={`Functions by: ${metric.label}`} columns={columns} rows={matching} />
      {selection && <Stacks model={model} metric={metric} selection={selection} select={select} />}
    </>
  );
}
