// The report of a run with a NUMA profile.

import type { Run } from "../../data/load";
import { ProfileReport } from "../profile/ProfileReport";
import { Numa } from "./Numa";

export function NumaReport({ run }: { run: Run }) {
  const { absent } = run.placements[0]!.profile;
  return (
    <ProfileReport
      run={run}
      absent={absent.map(({ view, reason }) => `${view}: ${reason}.`)}
      show={(others) => <Numa pages={run.placements} others={others} />}
    />
  );
}
