// A source file with a figure before each line that has one; a line that is chosen shows all its figures and the
// stacks that reach it.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { basename, METRICS, type Entry } from "../../data/heap";
import { Choice } from "../Choice";
import { amount } from "./Figure";
import type { ViewProps } from "./props";
import { Stacks } from "./Stacks";

export function Source({ model, metric, selection, select }: ViewProps) {
  const [kind, setKind] = useState<"own" | "total">("own");
  const { locations, sources } = model.page;
  const byFile = useMemo(() => {
    const found = new Map<string, Entry[]>();
    for (const one of model.entries(metric, "line")) {
      const file = locations.file[one.place]!;
      if (file) found.set(file, [...(found.get(file) ?? []), one]);
    }
    return found;
  }, [model, metric]);
  const files = useMemo(() => {
    const most = (file: string) => (byFile.get(file) ?? []).reduce((a, one) => a + one.own, 0);
    return [...new Set([...byFile.keys(), ...Object.keys(sources)])].sort(
      (a, b) => most(b) - most(a) || a.localeCompare(b),
    );
  }, [byFile, sources]);
  const chosen = selection ? locations.file[selection.place] : undefined;
  const file = chosen || files.find((name) => sources[name]) || files[0];
  if (!file) return <p class="soft">Nothing is known of the sources: compile with -g.</p>;
  return (
    <>
      <div class="controls">
        <Choice
          label="File"
          value={file}
          options={files.map((name) => [
            name,
            `${basename(name)}${sources[name] ? "" : " (not there)"}`,
          ])}
          onChange={(name) => select(firstIn(locations.file, name))}
        />
        <Choice
          label="Figures"
          value={kind}
          options={[
            ["own", "of the line itself"],
            ["total", "with callees"],
          ]}
          onChange={setKind}
        />
        <p class="soft">{file}</p>
      </div>
      <Lines
        file={file}
        entries={byFile.get(file) ?? []}
        kind={kind}
        model={model}
        metric={metric}
        selection={selection}
        select={select}
      />
      {selection && <Details model={model} metric={metric} selection={selection} select={select} />}
      {selection && <Stacks model={model} metric={metric} selection={selection} select={select} />}
    </>
  );
}

function firstIn(files: string[], file: string): { place: number; group: "function" } {
  return { place: files.indexOf(file), group: "function" };
}

interface LinesProps extends ViewProps {
  file: string;
  entries: Entry[];
  kind: "own" | "total";
}

function Lines({ file, entries, kind, model, metric, selection, select }: LinesProps) {
  const { locations, sources } = model.page;
  const source = sources[file];
  const figures = useMemo(() => {
    const found = new Map<number, Entry>(); // by line: inlined copies and template instances are one line
    for (const one of entries) {
      const line = locations.line[one.place]!;
      const before = found.get(line);
      if (!before) found.set(line, one);
      else if (metric.fold === "sum" || metric.fold === "peak")
        found.set(line, {
          place: before.place,
          own: before.own + one.own,
          total: before.total + one.total,
        });
    }
    return found;
  }, [entries, metric]);
  const most = [...figures.values()].reduce((a, one) => Math.max(a, one[kind]), 0);
  const at = useRef<HTMLDivElement>(null);
  const line =
    selection && locations.file[selection.place] === file
      ? locations.line[selection.place]!
      : busiest(figures, kind);
  useEffect(() => {
    const box = at.current?.parentElement;
    if (box && at.current)
      box.scrollTop = at.current.offsetTop - box.offsetTop - box.clientHeight / 3;
  }, [file, line]);
  if (!source) {
    return (
      <p class="notice">
        {file} was not there when this report was made. Its lines with figures:{" "}
        {[...figures.keys()]
          .sort((a, b) => a - b)
          .map((number) => `${number}: ${amount(figures.get(number)![kind], metric.unit)}`)
          .join("; ")}
      </p>
    );
  }
  return (
    <>
      {source.changed && (
        <p class="notice">
          This file has been changed since the program ran: figures may stand at other lines than
          they belong to.
        </p>
      )}
      <div class="source" tabIndex={0} role="region" aria-label={`Source of ${file}`}>
        {source.text.split("\n").map((text, k) => {
          const one = figures.get(k + 1);
          const value = one?.[kind] ?? 0;
          return (
            <div
              key={k}
              ref={k + 1 === line ? at : undefined}
              class={`line${one ? " known" : ""}${selection && k + 1 === line ? " chosen" : ""}`}
              onClick={one ? () => select({ place: one.place, group: "line" }) : undefined}
            >
              <span class="heat" style={{ opacity: most ? value / most : 0 }} aria-hidden="true" />
              <span class="figure">{value > 0 ? amount(value, metric.unit) : ""}</span>
              <span class="number">{k + 1}</span>
              <code>{text || " "}</code>
            </div>
          );
        })}
      </div>
    </>
  );
}

function busiest(figures: Map<number, Entry>, kind: "own" | "total"): number {
  let best = 0;
  for (const [line, one] of figures) if (!best || one[kind] > figures.get(best)![kind]) best = line;
  return best;
}

function Details({ model, selection }: ViewProps) {
  const { place, group } = selection!;
  const key = model.groupKey(group)(place);
  return (
    <div class="table-box">
      <table>
        <caption>
          {group === "line" ? model.source(place) : model.functionName(place)}: all figures
        </caption>
        <thead>
          <tr>
            <th scope="col">metric</th>
            <th scope="col" class="numeric">
              own
            </th>
            <th scope="col" class="numeric">
              with callees
            </th>
          </tr>
        </thead>
        <tbody>
          {METRICS.map((metric) => {
            const found = model.entries(metric, group).find((one) => one.place === key);
            return (
              <tr key={metric.key}>
                <th scope="row">{metric.words}</th>
                <td class="numeric">{found ? amount(found.own, metric.unit) : "–"}</td>
                <td class="numeric">{found ? amount(found.total, metric.unit) : "–"}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
