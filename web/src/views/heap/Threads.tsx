// The view of threads: their calls and time in the allocator, their lifetimes, and the depth of their stacks.

import { useMemo, useState } from "preact/hooks";

import { quantity } from "../../data/format";
import type { HeapThread } from "../../data/heapProfile";
import { Choice } from "../Choice";
import { Table, type Column } from "../Table";
import { amountColumn, formatCountOrQuantity } from "../profile/Figure";
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
const MAX_BARS = 64; // the table has all threads

export function Threads({ model, select }: HeapViewProps) {
  const { threads } = model.profile;
  const { seconds } = model.profile.process;
  const [field, setField] = useState<"count" | "seconds">("count");
  const kinds = KINDS.filter(([kind]) => threads.some((thread) => thread.calls[kind]?.[field]));
  const sum = (thread: HeapThread) =>
    kinds.reduce((all, [kind]) => all + (thread.calls[kind]?.[field] ?? 0), 0);
  const most = Math.max(1e-300, ...threads.map(sum));
  const unit = field === "count" ? "1" : "s";
  const columns = useMemo((): Column<HeapThread>[] => {
    const calls = (thread: HeapThread, field: "count" | "seconds", kinds: string[]) =>
      kinds.reduce((all, kind) => all + (thread.calls[kind]?.[field] ?? 0), 0);
    const allocating = ["malloc", "calloc", "memalign", "realloc"];
    return [
      {
        id: "thread",
        header: "thread",
        value: (thread) => thread.thread,
        show: (thread) => nameOf(thread),
      },
      amountColumn("first", "from", (thread) => thread.first, "s"),
      amountColumn("last", "to", (thread) => thread.last, "s"),
      amountColumn("bytes", "allocated", (thread) => thread.bytes, "B"),
      amountColumn("count", "allocations", (thread) => calls(thread, "count", allocating), "1"),
      amountColumn("in", "time in malloc", (thread) => calls(thread, "seconds", allocating), "s"),
      amountColumn("frees", "frees", (thread) => calls(thread, "count", ["free"]), "1"),
      amountColumn("free", "time in free", (thread) => calls(thread, "seconds", ["free"]), "s"),
      amountColumn("foreign", "of others' blocks", (thread) => thread.foreign_frees, "1"),
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
      amountColumn("resident", "stack in memory", (thread) => thread.resident || undefined, "B"),
    ];
  }, [model]);
  return (
    <>
      <div class="controls">
        <Choice
          label="By"
          value={field}
          options={[
            ["count", "calls"],
            ["seconds", "time"],
          ]}
          onChange={setField}
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
        aria-label={field === "count" ? "Calls by thread" : "Time by thread"}
      >
        {threads.slice(0, MAX_BARS).map((thread) => (
          <div class="bars-row" role="row" key={thread.thread}>
            <span role="rowheader">{nameOf(thread)}</span>
            <span class="bars-track stacked" aria-hidden="true">
              {kinds.map(([kind, label], k) => (
                <span
                  key={kind}
                  class={`part-${k}`}
                  style={{ width: `${(95 * (thread.calls[kind]?.[field] ?? 0)) / most}%` }}
                  title={`${label}: ${formatCountOrQuantity(thread.calls[kind]?.[field] ?? 0, unit)}`}
                />
              ))}
            </span>
            <span class="numeric" role="cell">
              {formatCountOrQuantity(sum(thread), unit)}
            </span>
          </div>
        ))}
      </div>
      {threads.length > 1 && (
        <div class="bars-plot lives" role="table" aria-label="Threads over time">
          {threads.slice(0, MAX_BARS).map((thread) => (
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
