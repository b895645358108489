// Memory by node over time, and the remote share where accesses or first touches have a time.

import { useMemo } from "preact/hooks";

import { TimeLines, type TimeLine } from "../../charts/TimeLines";
import { nodeName } from "../../data/numa";
import type { NumaSlices } from "../../data/numaProfile";
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
  const remote = useMemo((): TimeLine[] => {
    const points = sharePoints(timeline.slices);
    return points.length > 0 ? [{ name: "remote", points, filled: true }] : [];
  }, [model]);
  const subject = model.isExact ? "accesses" : "first touches";
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
      {model.isExact && <p class="soft">The memory includes the counters of the accesses.</p>}
      {process.emulated > 0 && <p class="soft">The nodes are emulated.</p>}
      {remote.length > 0 && (
        <TimeLines
          title={`Remote share of ${subject}`}
          label={`Share of remote ${subject} over time`}
          lines={remote}
          unit="%"
        />
      )}
    </>
  );
}

/** The remote share in % at the beginning of each slice with known accesses, and at the end of the last slice. */
function sharePoints({ seconds, width, local, remote }: NumaSlices): [number, number][] {
  const points = seconds.flatMap((begin, k): [number, number][] => {
    const known = local[k]! + remote[k]!;
    return known > 0 ? [[begin, (100 * remote[k]!) / known]] : [];
  });
  const last = points.at(-1);
  return last ? [...points, [last[0] + width, last[1]]] : points;
}
