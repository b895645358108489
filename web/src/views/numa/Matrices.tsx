// The view of the access matrix, of the whole program, a thread or an object.

import { useState } from "preact/hooks";

import { remoteShare, sharePercent } from "../../data/numa";
import { Choice } from "../Choice";
import { Matrix } from "./Matrix";
import type { NumaViewProps } from "./props";

const MAX_OPTIONS = 200; // threads to choose from, and as many objects

export function Matrices({ model }: NumaViewProps) {
  const { threads, objects } = model.profile;
  const [chosen, setChosen] = useState("all");
  const [group, number] = chosen.split(" ");
  const row = group === "thread" ? threads[Number(number)] : objects[Number(number)];
  const cells = group === "all" || !row ? model.matrix : model.counts(row);
  const quantity = model.isExact ? "Accesses" : "Pages touched first";
  const title = group === "all" || !row ? "all" : `${group} ${row.name}`;
  return (
    <>
      <div class="controls">
        <Choice
          label="Thread or object"
          value={chosen}
          options={[
            ["all", "the whole program"],
            ...threads
              .slice(0, MAX_OPTIONS)
              .map((thread, k): [string, string] => [`thread ${k}`, `thread ${thread.name}`]),
            ...objects
              .map((entry, k): [string, string] => [`object ${k}`, entry.name])
              .filter((_, k) => model.counts(objects[k]!).count.length > 0)
              .slice(0, MAX_OPTIONS),
          ]}
          onChange={setChosen}
        />
        <p class="soft">
          {sharePercent(remoteShare(cells))} remote, of those whose nodes are known
        </p>
      </div>
      <Matrix
        caption={`${quantity}: ${title}`}
        cells={cells}
        nodes={model.nodes}
        unit={model.unit}
      />
      <Topology {...{ model }} />
    </>
  );
}

function Topology({ model }: Pick<NumaViewProps, "model">) {
  const { nodes, process } = model.profile;
  return (
    <p class="soft">
      {nodes
        .map(
          ({ id, processors }) =>
            `Node ${id}: ${processors === 0 ? "memory alone" : `${processors} processor${processors === 1 ? "" : "s"}`}`,
        )
        .join("; ")}
      {process.emulated > 0 ? ". The nodes are emulated." : "."}
    </p>
  );
}
