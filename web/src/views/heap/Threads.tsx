// Calls and time by thread, how long each lived, and how deep its stack went.

import { useMemo, useState } from "preact/hooks";

import { quantity } from "../../data/format";
import type { HeapThread } from "../../data/heapProfile";
import { Choice } from "../Choice";
import { Table, type Column } from "../Table";
import { amount } from "../profile/Figure";
import type { HeapViewProps } from "./props";

const KINDS: [kind: string, label: string][] = [
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

export function Threads({ model, select }: HeapViewProps) {
  const { threads } = model.profile;
  const { seconds } = model.profile.process;
  const [what, setWhat] = useState<"count" | "seconds">("count");
  const kinds = KINDS.filter(([kind]) => threads.some((thread) => thread.calls[kind]?.[what]));
  const sum = (thread: HeapThread) =>
    kinds.reduce((all, [kind]) => all + (thread.calls[kind]?.[what] ?? 0), 0);
  const most = Math.max(1e-300, ...threads.map(sum));
  const unit = what === "count" ? "1" : "s";
  const columns = useMemo((): Column<HeapThread>[] => {
    const calls = (thread: HeapThread, field: "count" | "seconds", of: string[]) =>
      of.reduce((all, kind) => all + (thread.calls[kind]?.[field] ?? 0), 0);
    const gives = ["malloc", "calloc", "memalign", "realloc"];
    const number = (
      id: string,
      header: string,
      value: (thread: HeapThread) => number,
      of: string,
    ): Column<HeapThread> => ({
      id,
      header,
      numeric: true,
      value,
      show: (thread) => amount(value(thread), of),
    });
    return [
      {
        id: "thread",
        header: "thread",
        value: (thread) => thread.thread,
        show: (thread) => nameOf(thread),
      },
      number("first", "from", (thread) => thread.first, "s"),
      number("last", "to", (thread) => thread.last, "s"),
      number("bytes", "allocated", (thread) => thread.bytes, "B"),
      number("count", "allocations", (thread) => calls(thread, "count", gives), "1"),
      number("in", "time in malloc", (thread) => calls(thread, "seconds", gives), "s"),
      number("frees", "frees", (thread) => calls(thread, "count", ["free"]), "1"),
      number("free", "time in free", (thread) => calls(thread, "seconds", ["free"]), "s"),
      number("foreign", "of others' blocks", (thread) => thread.foreign_frees, "1"),
      {
        id: "stack",
        header: "deepest stack",
        numeric: true,
        value: (thread) => thread.deepest,
        show: (thread) =>
          thread.deepest === 0 ? (
            "–"
          ) : (
            <button
              type="button"
              class="link"
              title={`at ${quantity(thread.deepest_seconds, "s")}, in ${model.functionName(thread.deepest_site)}`}
              onClick={() => select({ location: thread.deepest_site, group: "line" }, "source")}
            >
              {quantity(thread.deepest, "B")}
            </button>
          ),
      },
      {
        id: "resident",
        header: "stack in memory",
        numeric: true,
        value: (thread) => thread.resident || undefined,
        show: (thread) => (thread.resident ? quantity(thread.resident, "B") : "–"),
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
          {kinds.map(([kind, label], k) => (
            <span key={kind}>
              <i class={`part-${k}`} /> {label}
            </span>
          ))}
        </p>
      </div>
      <div
        class="bars-plot"
        role="table"
        aria-label={what === "count" ? "Calls by thread" : "Time by thread"}
      >
        {threads.slice(0, SHOWN).map((thread) => (
          <div class="bars-row" role="row" key={thread.thread}>
            <span role="rowheader">{nameOf(thread)}</span>
            <span class="bars-track stacked" aria-hidden="true">
              {kinds.map(([kind, label], k) => (
                <span
                  key={kind}
                  class={`part-${k}`}
                  style={{ width: `${(95 * (thread.calls[kind]?.[what] ?? 0)) / most}%` }}
                  title={`${label}: ${amount(thread.calls[kind]?.[what] ?? 0, unit)}`}
                />
              ))}
            </span>
            <span class="numeric" role="cell">
              {amount(sum(thread), unit)}
            </span>
          </div>
        ))}
      </div>
      {threads.length > 1 && (
        <div class="bars-plot lives" role="table" aria-label="Threads over time">
          {threads.slice(0, SHOWN).map((thread) => (
            <div class="bars-row" role="row" key={thread.thread}>
              <span role="rowheader">{nameOf(thread)}</span>
              <span class="bars-track" aria-hidden="true">
                <span
                  class="bars-bar"
                  style={{
                    left: `${(100 * thread.first) / seconds}%`,
                    width: `${Math.max(0.3, (100 * (thread.last - thread.first)) / seconds)}%`,
                  }}
                />
              </span>
              <span class="numeric" role="cell">
                {quantity(thread.last - thread.first, "s")}
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
