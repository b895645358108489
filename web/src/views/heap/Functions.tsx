// All functions by a metric, to be searched and sorted.

import { useMemo, useState } from "preact/hooks";

import type { Entry } from "../../data/heap";
import { Table, type Column } from "../Table";
import { amount, ShareBar } from "./Figure";
import type { ViewProps } from "./props";
import { Stacks } from "./Stacks";

export function Functions({ model, metric, selection, select }: ViewProps) {
  const [words, setWords] = useState("");
  const entries = model.entries(metric, "function");
  const shown = useMemo(() => {
    const wanted = words.toLowerCase();
    const { function: names, file } = model.page.locations;
    return entries.filter(({ place }) =>
      `${names[place]} ${file[place]}`.toLowerCase().includes(wanted),
    );
  }, [entries, words, model]);
  const columns = useMemo((): Column<Entry>[] => {
    const most = entries.reduce((a, one) => Math.max(a, one.own), 0);
    const busiest = model.busiest(metric);
    const at = (one: Entry) => busiest.get(one.place) ?? one.place;
    return [
      {
        id: "own",
        header: "own",
        numeric: true,
        value: (one) => one.own,
        show: (one) => amount(one.own, metric.unit),
      },
      {
        id: "bar",
        header: "",
        value: (one) => one.own,
        show: (one) => <ShareBar part={most ? one.own / most : 0} />,
      },
      {
        id: "total",
        header: "with callees",
        numeric: true,
        value: (one) => one.total,
        show: (one) => amount(one.total, metric.unit),
      },
      {
        id: "function",
        header: "function",
        value: (one) => model.functionName(one.place),
        show: (one) => (
          <button
            type="button"
            class="link"
            title={model.page.locations.function[one.place]}
            onClick={() => select({ place: one.place, group: "function" })}
          >
            {model.functionName(one.place)}
          </button>
        ),
      },
      {
        id: "source",
        header: "at",
        value: (one) => model.source(at(one)),
        show: (one) => (
          <button
            type="button"
            class="link soft"
            onClick={() => select({ place: at(one), group: "function" }, "source")}
          >
            {model.source(at(one))}
          </button>
        ),
      },
    ];
  }, [entries, metric, model]);
  return (
    <>
      <label class="choice">
        <span>Search</span>
        <input
          type="search"
          value={words}
          placeholder="function or file"
          onInput={(event) => setWords(event.currentTarget.value)}
        />
      </label>
      <Table caption={`Functions by: ${metric.words}`} columns={columns} rows={shown} />
      {selection && <Stacks model={model} metric={metric} selection={selection} select={select} />}
    </>
  );
}
