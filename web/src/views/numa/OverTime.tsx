// Memory by node over time, and the remote share where the accesses have a time.

import { useMemo } from "preact/hooks";

import { TimeLines, type TimeLine } from "../../charts/TimeLines";
import { nodeName } from "../../data/numa";
import type { NumaViewProps } from "./props";

export function OverTime({ model }: NumaViewProps) {
  const { timeline, process } = model.profile;
  const memory = useMemo(
    () =>
      model.nodes
        .map((node, k): TimeLine => ({
          name: nodeName(node),
          points: timeline.seconds.map((seconds, index) => [
            seconds,
            timeline.resident[k]![index]!,
          ]),
        }))
        .filter((line) => line.points.some(([, value]) => value > 0)),
    [model],
  );
  return (
    <>
      {memory.length > 0 && (
        <TimeLines
          title="Memory by node"
          label="Resident memory of each node over time"
          lines={memory}
          unit="B"
        />
      )}
      {model.isExact && <p class="soft">The counters of the accesses are share of this memory.</p>}
      {process.emulated > 0 && <p class="soft">The nodes are emulated.</p>}
      {timeline.remote_share.length > 0 && (
        <TimeLines
          title="Remote share"
          label="Share of remote accesses over time"
          lines={[
            {
              name: "remote",
              points: timeline.remote_share.map((share, k) => [timeline.seconds[k]!, share]),
              filled: true,
            },
          ]}
          unit="1"
        />
      )}
    </>
  );
}
