// The report of a run with a heap profile.

import type { Run } from "../../data/load";
import { ProfileReport } from "../profile/ProfileReport";
import { Heap } from "./Heap";

export function HeapReport({ run }: { run: Run }) {
  return (
    <ProfileReport
      run={run}
      absent={absent(run)}
      show={(others) => <Heap pages={run.heaps} others={others} />}
    />
  );
}

/** Why views of the largest process are missing. */
function absent(run: Run): string[] {
  const { touches, fragmentation } = run.heaps[0]!.profile;
  const reasons: string[] = [];
  if (!touches)
    reasons.push(
      "First touch: page faults were not watched, or the system does not let a user watch them (kernel.perf_event_paranoid above 2).",
    );
  if (!fragmentation)
    reasons.push(
      "Fragmentation: the process never held notably more memory than was allocated, or the trace has no addresses.",
    );
  return reasons;
}
