// The summary of a NUMA profile: totals, the access matrix, and the largest objects.

import { quantity } from "../../data/format";
import { byThreadNode, remoteShare, sharePercent, split } from "../../data/numa";
import { formatCountOrQuantity, Tiles, type TileText } from "../profile/Figure";
import { AdviceTable } from "./Advice";
import { Matrix } from "./Matrix";
import type { NumaViewProps } from "./props";
import { Ranks } from "./Ranks";
import { SplitBar, SplitLegend } from "./SplitBar";

const TOP = 8; // objects

export function Summary(props: NumaViewProps) {
  const { model } = props;
  const { objects, advice } = model.profile;
  const countName = model.isExact ? "Accesses" : "Pages touched first";
  const shown = objects.filter((entry) => model.counts(entry).count.length > 0).slice(0, TOP);
  const most = Math.max(0, ...shown.map((entry) => split(model.counts(entry)).total));
  return (
    <>
      <Tiles tiles={tiles(props)} />
      {advice.length > 0 && <h3>What to change first</h3>}
      {advice.length > 0 && (
        <AdviceTable {...props} caption="What to change first" rows={advice.slice(0, 3)} />
      )}
      <div class="numa-beside">
        <Matrix
          caption={`${countName}: all`}
          cells={model.matrix}
          nodes={model.nodes}
          unit={model.unit}
        />
        {shown.length > 0 && (
          <div class="numa-block">
            <h3>{countName} by object</h3>
            <SplitLegend />
            <div class="bars-plot" role="table" aria-label={`${countName} by object`}>
              {shown.map((entry, k) => {
                const parts = split(model.counts(entry));
                return (
                  <div class="bars-row" role="row" key={k}>
                    <span role="rowheader" title={entry.name}>
                      {entry.name}
                    </span>
                    <SplitBar parts={parts} most={most} unit={model.unit} />
                    <span class="numeric" role="cell">
                      {sharePercent(remoteShare(model.counts(entry)))} remote
                    </span>
                  </div>
                );
              })}
            </div>
          </div>
        )}
      </div>
      {model.page.ranks.length > 0 && <Ranks ranks={model.page.ranks} unit={model.unit} />}
    </>
  );
}

function tiles({ model }: NumaViewProps): TileText[] {
  const { process, nodes, threads, objects, touched, timeline, sampling } = model.profile;
  const all = split(model.matrix);
  const first = split(touched);
  const unpinned = model.total(model.metric("unpinned"));
  const moved = objects.reduce((sum, entry) => sum + entry.moved, 0);
  const known = threads.filter((thread) => thread.pinned !== null);
  const resident = timeline.seconds.map((_, k) =>
    timeline.resident.reduce((sum, values) => sum + values[k]!, 0),
  );
  const rows: TileText[] = [
    [
      "Local",
      formatCountOrQuantity(all.local, model.unit),
      model.isExact ? "accesses" : "touched first",
    ],
    [
      "Remote",
      formatCountOrQuantity(all.remote, model.unit),
      model.isExact ? "accesses" : "touched first",
    ],
    [
      "Of unknown node",
      formatCountOrQuantity(all.unknown, model.unit),
      all.total > 0 ? `${sharePercent((all.total - all.unknown) / all.total)} attributed` : "",
    ],
  ];
  if (model.isExact && known.length > 0)
    rows.push([
      "By unbound threads",
      formatCountOrQuantity(unpinned, "1"),
      all.total > 0 ? `${sharePercent(unpinned / all.total)} of the accesses` : "",
    ]);
  if (sampling && sampling.samples > 0)
    rows.push(
      [
        "Given to an object",
        sharePercent(sampling.attributed / sampling.samples),
        `of ${formatCountOrQuantity(sampling.samples, "1")} samples`,
      ],
      ...sampling.sources
        .map((source, k): TileText => [
          `Answered by ${source}`,
          sharePercent(sampling.samples_by_source[k]! / sampling.samples),
          "of the samples",
        ])
        .filter((_, k) => sampling.samples_by_source[k]! > 0),
    );
  rows.push(
    [
      "Threads",
      String(threads.length),
      known.length > 0
        ? `${known.filter((thread) => thread.pinned).length} bound to one node`
        : "bindings are not known",
    ],
    [
      "Touched first",
      formatCountOrQuantity(first.total, "B"),
      `${sharePercent(remoteShare(touched))} remote`,
    ],
  );
  if (moved > 0) rows.push(["Migrated", quantity(moved, "B"), "found on another node later"]);
  if (resident.length > 0)
    rows.push(["In memory, at most", quantity(Math.max(...resident), "B"), "of all nodes"]);
  if (process.seconds > 0) rows.push(["Ran for", quantity(process.seconds, "s"), "recorded"]);
  const running = byThreadNode(model.matrix, model.nodes).filter((count) => count > 0).length;
  rows.push([
    "Nodes in use",
    `${running} of ${nodes.length}`,
    process.emulated > 0 ? "emulated" : "by threads",
  ]);
  return rows;
}
