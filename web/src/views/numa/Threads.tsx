// The view of threads: the nodes that they ran on, their accesses from there, and their bindings over time.

import { useMemo, useState } from "preact/hooks";

import { byThreadNode, nodeName, remoteShare, sharePercent, split } from "../../data/numa";
import type { NumaBinding, NumaThread } from "../../data/numaProfile";
import { Choice } from "../Choice";
import { amountColumn, formatCountOrQuantity } from "../profile/Figure";
import { figureColumn, Table, type Column } from "../Table";
import { Matrix } from "./Matrix";
import type { NumaViewProps } from "./props";
import { SplitBar, SplitLegend } from "./SplitBar";

const MAX_BARS = 64; // the table has all threads

export function Threads({ model }: NumaViewProps) {
  const { threads } = model.profile;
  const [chosen, setChosen] = useState("0");
  const most = Math.max(0, ...threads.map((thread) => split(model.counts(thread)).total));
  const columns = useMemo((): Column<NumaThread>[] => {
    const ranOn = model.nodes
      .map((node, k) => ({ node, k }))
      .filter(({ node }) => model.matrix.thread_node.includes(node))
      .map(({ node, k }) =>
        amountColumn(
          `on ${node}`,
          `from ${nodeName(node)}`,
          (thread: NumaThread) => byThreadNode(model.counts(thread), model.nodes)[k]!,
          model.unit,
        ),
      );
    return [
      { id: "name", header: "thread", value: (thread) => thread.name },
      figureColumn("remote", "remote", (thread) => remoteShare(model.counts(thread)), sharePercent),
      ...ranOn,
      {
        id: "bound",
        header: "bound to",
        value: (thread) => bindingText(thread),
      },
    ];
  }, [model]);
  const thread = threads[Number(chosen)] ?? threads[0]!;
  return (
    <>
      <SplitLegend />
      <div
        class="bars-plot"
        role="table"
        aria-label={model.isExact ? "Accesses by thread" : "Touched by thread"}
      >
        {threads.slice(0, MAX_BARS).map((row, k) => {
          const parts = split(model.counts(row));
          return (
            <div class="bars-row" role="row" key={k}>
              <span role="rowheader">{row.name}</span>
              <SplitBar parts={parts} most={most} unit={model.unit} />
              <span class="numeric" role="cell">
                {formatCountOrQuantity(parts.total, model.unit)}
              </span>
            </div>
          );
        })}
      </div>
      <Table caption="Threads" columns={columns} rows={threads} />
      <div class="controls">
        <Choice
          label="Thread"
          value={chosen}
          options={threads.map((row, k) => [String(k), row.name])}
          onChange={setChosen}
        />
      </div>
      <div class="numa-beside">
        <Matrix
          caption={`${model.isExact ? "Accesses" : "Pages touched first"}: thread ${thread.name}`}
          cells={model.counts(thread)}
          nodes={model.nodes}
          unit={model.unit}
        />
        <Bindings thread={thread} />
      </div>
    </>
  );
}

function bindingText(thread: NumaThread): string {
  const last = thread.bindings.at(-1);
  if (!last) return "unknown";
  return thread.pinned ? `processor ${last.processors}` : `no node, processors ${last.processors}`;
}

const BINDINGS: Column<NumaBinding>[] = [
  amountColumn("seconds", "after", (row) => row.seconds, "s"),
  { id: "processors", header: "processors", value: (row) => row.processors },
  { id: "policy", header: "memory policy", value: (row) => row.policy },
  { id: "nodes", header: "its nodes", value: (row) => row.nodes.join(", ") },
];

function Bindings({ thread }: { thread: NumaThread }) {
  if (thread.bindings.length === 0)
    return <p class="soft">The bindings of this thread were not watched.</p>;
  return (
    <div class="numa-block">
      <h3>Binding log: thread {thread.name}</h3>
      <Table
        caption={`Binding log of thread ${thread.name}`}
        columns={BINDINGS}
        rows={thread.bindings}
      />
    </div>
  );
}
