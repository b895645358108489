// The report from top to bottom: the verdict, its causes, then the figures.

import { useMemo } from "preact/hooks";

import { useTheme } from "../charts/theme";
import { allocatorPoints } from "../data/allocators";
import { barGroups, distributions, numaMatrices } from "../data/figures";
import type { Run } from "../data/load";
import { isOfEvents } from "../data/events";
import { isStorage } from "../data/storage";
import { isOfFabric, isOfStep } from "../data/fabric";
import { isPlan } from "../data/plan";
import { isSweepPoint, sweeps } from "../data/sweep";
import { Allocators } from "./Allocators";
import { Banner } from "./Banner";
import { Events } from "./events/Events";
import { Fabric } from "./fabric/Fabric";
import { Figures } from "./Figures";
import { HeapReport } from "./heap/HeapReport";
import { Hosts } from "./Hosts";
import { Findings, Verdicts } from "./Judgement";
import { Measurements } from "./Measurements";
import { Model } from "./model/Model";
import { NumaReport } from "./numa/NumaReport";
import { PairMatrices } from "./PairMatrices";
import { Storage } from "./Storage";
import { Sweeps } from "./Sweeps";
import { Trouble } from "./Trouble";

export function App({ run }: { run: Run }) {
  useTheme();
  return (
    <>
      <Body run={run} />
      <footer class="soft">
        Written by Assay {run.info.assay}. This file holds the whole run and loads nothing from any
        network.
      </footer>
    </>
  );
}

/** The page of the run's profile, or the sections of any other run. */
function Body({ run }: { run: Run }) {
  if (run.heaps.length > 0) return <HeapReport run={run} />;
  if (run.placements.length > 0) return <NumaReport run={run} />;
  return <Sections run={run} />;
}

function Sections({ run }: { run: Run }) {
  const allSweeps = useMemo(() => sweeps(run.measurements.filter(isSweepPoint)), [run]);
  const single = useMemo(() => run.measurements.filter((record) => !isSweepPoint(record)), [run]);
  const storage = useMemo(() => single.filter(isStorage), [single]);
  const comparable = useMemo(
    () =>
      single.filter((record) => !isStorage(record) && !isOfFabric(record) && !isOfEvents(record)),
    [single],
  );
  const groups = useMemo(
    () => barGroups(comparable, run.verdicts, run.findings),
    [comparable, run],
  );
  const spread = useMemo(() => distributions(single), [single]);
  const numa = useMemo(() => numaMatrices(single), [single]);
  const allocators = useMemo(() => allocatorPoints(single), [single]);
  const events = useMemo(() => run.measurements.filter(isOfEvents), [run]);
  const fabric = useMemo(() => single.filter(isOfFabric), [single]);
  const facts = useMemo(() => run.contexts.filter((context) => !isPlan(context)), [run]);
  const listed = useMemo(() => single.filter((record) => !isOfStep(record)), [single]);
  const matrices = useMemo(() => run.matrices.filter((matrix) => matrix.measured > 0), [run]);
  return (
    <>
      <Banner run={run} />
      <Trouble run={run} />
      {(run.info.outcome || run.findings.length > 0) && <Findings run={run} />}
      {run.verdicts.length > 0 && <Verdicts run={run} />}
      {run.capacities.length > 0 && (
        <Model capacities={run.capacities} comparisons={run.comparisons} />
      )}
      {fabric.length > 0 && <Fabric measurements={fabric} contexts={run.contexts} />}
      {events.length > 0 && <Events measurements={events} findings={run.findings} />}
      {groups.length + spread.length + numa.length > 0 && (
        <Figures groups={groups} distributions={spread} numa={numa} />
      )}
      {matrices.length > 0 && (
        <PairMatrices
          matrices={matrices}
          omitted={run.matrices.length - matrices.length}
          findings={run.findings}
        />
      )}
      {allSweeps.length > 0 && <Sweeps sweeps={allSweeps} />}
      {storage.length > 0 && <Storage measurements={storage} />}
      {allocators.length > 0 && <Allocators points={allocators} />}
      {listed.length > 0 && <Measurements measurements={listed} />}
      {facts.length > 0 && <Hosts contexts={facts} />}
    </>
  );
}
