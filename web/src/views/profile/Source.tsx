// The view of a source file with the figure of each line. A chosen line shows all its figures and the stacks that pass
// through it.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { basename, type Entry } from "../../data/profile";
import { Choice } from "../Choice";
import { formatCountOrQuantity } from "./Figure";
import type { ViewProps } from "./props";
import { Stacks } from "./Stacks";

export function Source({ model, metric, selection, select }: ViewProps) {
  const [kind, setKind] = useState<"exclusive" | "inclusive">("exclusive");
  const { sources } = model;
  const { locations } = model.tree;
  const byFile = useMemo(() => {
    const entries = new Map<string, Entry[]>();
    for (const entry of model.entries(metric, "line")) {
      const file = locations.file[entry.location]!;
      if (file) entries.set(file, [...(entries.get(file) ?? []), entry]);
    }
    return entries;
  }, [model, metric]);
  const files = useMemo(() => {
    const largest = (file: string) =>
      (byFile.get(file) ?? []).reduce((a, entry) => a + entry.exclusive, 0);
    return [...new Set([...byFile.keys(), ...Object.keys(sources)])].sort(
      (a, b) => largest(b) - largest(a) || a.localeCompare(b),
    );
  }, [byFile, sources]);
  const chosen = selection ? locations.file[selection.location] : undefined;
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
            `${basename(name)}${sources[name] ? "" : " (not kept)"}`,
          ])}
          onChange={(name) => select(firstIn(locations.file, name))}
        />
        <Choice
          label="Figures"
          value={kind}
          options={[
            ["exclusive", "of the line itself"],
            ["inclusive", "with callees"],
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

function firstIn(files: string[], file: string): { location: number; group: "function" } {
  return { location: files.indexOf(file), group: "function" };
}

interface LinesProps extends ViewProps {
  file: string;
  entries: Entry[];
  kind: "exclusive" | "inclusive";
}

function Lines({ file, entries, kind, model, metric, selection, select }: LinesProps) {
  const { locations } = model.tree;
  const source = model.sources[file];
  const problem = model.sourceProblems.find((row) => row.file === file);
  const figures = useMemo(
    () => new Map(entries.toReversed().map((entry) => [locations.line[entry.location]!, entry])),
    [entries],
  );
  const largest = [...figures.values()].reduce((a, entry) => Math.max(a, entry[kind]), 0);
  const lineElement = useRef<HTMLDivElement>(null);
  const line =
    selection && locations.file[selection.location] === file
      ? locations.line[selection.location]!
      : largestLine(figures, kind);
  useEffect(() => {
    const box = lineElement.current?.parentElement;
    if (box && lineElement.current)
      box.scrollTop = lineElement.current.offsetTop - box.offsetTop - box.clientHeight / 3;
  }, [file, line]);
  if (!source) {
    return (
      <p class="notice">
        {file} is not in this report
        {problem
          ? `: ${problem.problem}; fix: ${problem.fix}.`
          : '; --sources of the command "show" adds the files of the machine that it is typed on.'}{" "}
        Its lines with figures:{" "}
        {[...figures.keys()]
          .sort((a, b) => a - b)
          .map(
            (number) =>
              `${number}: ${formatCountOrQuantity(figures.get(number)![kind], metric.unit)}`,
          )
          .join("; ")}
      </p>
    );
  }
  return (
    <>
      {problem && (
        <p class="notice">
          {file}: {problem.problem}; fix: {problem.fix}.
        </p>
      )}
      <div class="source" tabIndex={0} role="region" aria-label={`Source of ${file}`}>
        {source.text.split("\n").map((text, k) => {
          const entry = figures.get(k + 1);
          const value = entry?.[kind] ?? 0;
          return (
            <div
              key={k}
              ref={k + 1 === line ? lineElement : undefined}
              class={`line${entry ? " known" : ""}${selection && k + 1 === line ? " chosen" : ""}`}
              onClick={
                entry ? () => select({ location: entry.location, group: "line" }) : undefined
              }
            >
              <span
                class="heat"
                style={{ opacity: largest ? value / largest : 0 }}
                aria-hidden="true"
              />
              <span class="figure">
                {value > 0 ? formatCountOrQuantity(value, metric.unit) : ""}
              </span>
              <span class="number">{k + 1}</span>
              <code>{text || " "}</code>
            </div>
          );
        })}
      </div>
    </>
  );
}

function largestLine(figures: Map<number, Entry>, kind: "exclusive" | "inclusive"): number {
  let best = 0;
  for (const [line, entry] of figures)
    if (!best || entry[kind] > figures.get(best)![kind]) best = line;
  return best;
}

function Details({ model, selection }: ViewProps) {
  const { location, group } = selection!;
  const key = model.groupKey(group)(location);
  return (
    <div class="table-box">
      <table>
        <caption>
          {group === "line" ? model.source(location) : model.functionName(location)}: all figures
        </caption>
        <thead>
          <tr>
            <th scope="col">metric</th>
            <th scope="col" class="numeric">
              exclusive
            </th>
            <th scope="col" class="numeric">
              with callees
            </th>
          </tr>
        </thead>
        <tbody>
          {model.metrics.map((metric) => {
            const entries = model.entries(metric, group).find((entry) => entry.location === key);
            return (
              <tr key={metric.key}>
                <th scope="row">{metric.label}</th>
                <td class="numeric">
                  {entries ? formatCountOrQuantity(entries.exclusive, metric.unit) : "–"}
                </td>
                <td class="numeric">
                  {entries ? formatCountOrQuantity(entries.inclusive, metric.unit) : "–"}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
