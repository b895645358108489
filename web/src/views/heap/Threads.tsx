// Calls and time by thread, how long each lived, and how deep its stack went.

import { useMemo, useState } from "preact/hooks";

import { quantity } from "../../data/format";
import type { HeapThread } from "../../data/heapPage";
import { Choice } from "../Choice";
import { Table, type Column } from "../Table";
import { amount } from "./Figure";
import type { ViewProps } from "./props";

const KINDS: [kind: string, words: string][] = [
  ["malloc", "malloc, new"],
  ["calloc", "calloc"],
  ["memalign", "aligned"],
  ["realloc", "realloc"],
  ["free", "free, delete"],
  ["map", "mmap"],
  ["unmap", "munmap"],
  ["brk", "brk"],
];
const SHOWN = 64; // bars; the table has all

export function Threads({ model, select }: ViewProps) {
  const { threads, seconds } = model.page;
  const [what, setWhat] = useState<"count" | "seconds">("count");
  const kinds = KINDS.filter(([kind]) => threads.some((one) => one.calls[kind]?.[what]));
  const sum = (one: HeapThread) =>
    kinds.reduce((all, [kind]) => all + (one.calls[kind]?.[what] ?? 0), 0);
  const most = Math.max(1e-300, ...threads.map(sum));
  const unit = what === "count" ? "1" : "s";
  const columns = useMemo((): Column<HeapThread>[] => {
    const calls = (one: HeapThread, field: "count" | "seconds", of: string[]) =>
      of.reduce((all, kind) => all + (one.calls[kind]?.[field] ?? 0), 0);
    const gives = ["malloc", "calloc", "memalign", "realloc"];
    const number = (
      id: string,
      header: string,
      value: (one: HeapThread) => number,
      of: string,
    ): Column<HeapThread> => ({
      id,
      header,
      numeric: true,
      value,
      show: (one) => amount(value(one), of),
    });
    return [
      { id: "thread", header: "thread", value: (one) => one.thread, show: (one) => nameOf(one) },
      number("first", "from", (one) => one.first, "s"),
      number("last", "to", (one) => one.last, "s"),
      number("bytes", "allocated", (one) => one.bytes, "B"),
      number("count", "allocations", (one) => calls(one, "count", gives), "1"),
      number("in", "time in malloc", (one) => calls(one, "seconds", gives), "s"),
      number("frees", "frees", (one) => calls(one, "count", ["free"]), "1"),
      number("free", "time in free", (one) => calls(one, "seconds", ["free"]), "s"),
      number("foreign", "of others' blocks", (one) => one.foreign_frees, "1"),
      {
        id: "stack",
        header: "deepest stack",
        numeric: true,
        value: (one) => one.deepest,
        show: (one) =>
          one.deepest_node < 0 ? (
            quantity(one.deepest, "B")
          ) : (
            <button
              type="button"
              class="link"
              title={`at ${quantity(one.deepest_seconds, "s")}, in ${model.functionName(model.asker[one.deepest_node]!)}`}
              onClick={() =>
                select({ place: model.asker[one.deepest_node]!, group: "line" }, "source")
              }
            >
              {quantity(one.deepest, "B")}
            </button>
          ),
      },
      {
        id: "resident",
        header: "stack in memory",
        numeric: true,
        value: (one) => one.resident || undefined,
        show: (one) => (one.resident ? quantity(one.resident, "B") : "–"),
      },
    ];
  }, [model]);
  return (
    <>
      <div class="controls">
        <Choice
          label="By"
          value={what}
          options={[
            ["count", "calls"],
            ["seconds", "time"],
          ]}
          onChange={setWhat}
        />
        <p class="legend">
          {kinds.map(([kind, words], k) => (
            <span key={kind}>
              <i class={`part-${k}`} /> {words}
            </span>
          ))}
        </p>
      </div>
      <div
        class="bars-plot"
        role="table"
        aria-label={what === "count" ? "Calls by thread" : "Time by thread"}
      >
        {threads.slice(0, SHOWN).map((one) => (
          <div class="bars-row" role="row" key={one.thread}>
            <span role="rowheader">{nameOf(one)}</span>
            <span class="bars-track stacked" aria-hidden="true">
              {kinds.map(([kind, words], k) => (
                <span
                  key={kind}
                  class={`part-${k}`}
                  style={{ width: `${(95 * (one.calls[kind]?.[what] ?? 0)) / most}%` }}
                  title={`${words}: ${amount(one.calls[kind]?.[what] ?? 0, unit)}`}
                />
              ))}
            </span>
            <span class="numeric" role="cell">
              {amount(sum(one), unit)}
            </span>
          </div>
        ))}
      </div>
      {threads.length > 1 && (
        <div class="bars-plot lives" role="table" aria-label="Threads over time">
          {threads.slice(0, SHOWN).map((one) => (
            <div class="bars-row" role="row" key={one.thread}>
              <span role="rowheader">{nameOf(one)}</span>
              <span class="bars-track" aria-hidden="true">
                <span
                  class="bars-bar"
                  style={{
                    left: `${(100 * one.first) / seconds}%`,
                    width: `${Math.max(0.3, (100 * (one.last - one.first)) / seconds)}%`,
                  }}
                />
              </span>
              <span class="numeric" role="cell">
                {quantity(one.last - one.first, "s")}
              </span>
            </div>
          ))}
        </div>
      )}
      <Table caption="Threads" columns={columns} rows={threads} />
    </>
  );
}

export function nameOf(thread: HeapThread): string {
  return `${thread.thread} ${thread.name}`.trim();
}
