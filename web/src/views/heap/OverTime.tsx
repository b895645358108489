// Memory over time: live and resident bytes, the rate of allocation, the depth of stacks.

import { useMemo } from "preact/hooks";

import { TimeLines, type TimeLine } from "../../charts/TimeLines";
import type { HeapViewProps } from "./props";
import { nameOf } from "./Threads";

const MAX_THREADS = 8; // those with the deepest stacks

export function OverTime({ model }: HeapViewProps) {
  const { timeline, threads } = model.profile;
  const { memory, rate, allocations, stacks } = useMemo(() => {
    const steps = (values: number[], scale = 1): [number, number][] =>
      values.map((value, k) => [timeline.start + k * timeline.step, value * scale]);
    const sampled = (values: number[]): [number, number][] =>
      values.map((value, k) => [timeline.seconds[k]!, value]);
    const memory: TimeLine[] = [
      { name: "requested", points: steps(timeline.live), filled: true },
      { name: "physical", points: sampled(timeline.resident) },
      { name: "virtual", points: sampled(timeline.virtual), hidden: true },
    ];
    const perSecond = 1 / timeline.step;
    return {
      memory: memory.filter((line) => line.points.length > 0),
      rate: [{ name: "allocated", points: steps(timeline.bytes, perSecond), filled: true }],
      allocations: [
        { name: "allocations", points: steps(timeline.count, perSecond), filled: true },
      ],
      stacks: [...threads]
        .filter((thread) => thread.depth.length > 0)
        .sort((a, b) => b.deepest - a.deepest)
        .slice(0, MAX_THREADS)
        .map((thread): TimeLine => ({ name: nameOf(thread), points: steps(filled(thread.depth)) })),
    };
  }, [model]);
  return (
    <div class="charts">
      <TimeLines
        title="Memory"
        label="Requested, physical and virtual memory over time."
        unit="B"
        lines={memory}
      />
      <TimeLines
        title="Allocation rate"
        label="Bytes allocated per second, over time."
        unit="B/s"
        lines={rate}
      />
      <TimeLines
        title="Allocations"
        label="Allocations in a second, over time."
        unit="1/s"
        lines={allocations}
      />
      {stacks.length > 0 && (
        <TimeLines
          title="Depth of the stack, by thread"
          label="How deep the stack of each thread was, over time."
          unit="B"
          lines={stacks}
        />
      )}
    </div>
  );
}

/** Fills steps without a sample (0) with the depth of the step before. */
function filled(depth: number[]): number[] {
  let last = 0;
  return depth.map((value) => (last = value || last));
}
