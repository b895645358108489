// The summary of a heap profile: totals of the program, and the functions with the largest figures.

import { NONE, quantity } from "../../data/format";
import { formatCountOrQuantity, share, ShareBar, Tiles, type TileText } from "../profile/Figure";
import type { HeapViewProps } from "./props";

const TOP = 5;
const COARSE_S = 0.01; // heaptrack writes the time every 10 ms; a shorter run has no rates or shares
const TOP_METRICS = ["bytes", "count", "peak", "leaked", "malloc_time", "temporary"];

export function Summary(props: HeapViewProps) {
  return (
    <>
      <Tiles tiles={tiles(props)} />
      <div class="charts">
        {TOP_METRICS.map((key) => (
          <TopFunctions key={key} {...props} metric={props.model.metric(key)} />
        ))}
      </div>
    </>
  );
}

function tiles({ model }: HeapViewProps): TileText[] {
  const { totals, timeline, threads, objects, variables } = model.profile;
  const { seconds } = model.profile.process;
  const most = (values: number[]) => values.reduce((a, b) => Math.max(a, b), 0);
  const calls = (kinds: string[]) =>
    threads.reduce(
      (sum, entry) =>
        sum + kinds.reduce((part, kind) => part + (entry.calls[kind]?.seconds ?? 0), 0),
      0,
    );
  const isTimed = seconds >= COARSE_S;
  const malloc = calls(["malloc", "calloc", "memalign", "realloc"]);
  const free = calls(["free"]);
  // An imported profile has no samples of the process, and its clock is coarser than a step.
  const isSampled = most(timeline.virtual) > 0;
  const rate = isSampled || timeline.step >= COARSE_S ? most(timeline.bytes) / timeline.step : NaN;
  const known = (value: number, unit: string) => (value > 0 ? quantity(value, unit) : NONE);
  const variable = objects.reduce((sum, entry) => sum + entry.data + entry.bss, 0);
  const perThread = objects.reduce((sum, entry) => sum + entry.tls, 0);
  return [
    [
      "Ran for",
      quantity(seconds, "s"),
      `${threads.length} thread${threads.length === 1 ? "" : "s"}`,
    ],
    ["Physical memory, peak", known(most(timeline.resident), "B"), ""],
    ["Virtual memory, peak", known(most(timeline.virtual), "B"), ""],
    [
      "Requested memory, peak",
      quantity(totals.peak, "B"),
      `${formatCountOrQuantity(totals.peak_count, "1")} blocks, after ${quantity(totals.peak_seconds, "s")}`,
    ],
    [
      "Allocated in all",
      quantity(totals.bytes, "B"),
      `${formatCountOrQuantity(totals.count, "1")} blocks`,
    ],
    ["Mean block", totals.count ? quantity(totals.bytes / totals.count, "B") : "–", ""],
    [
      "Recycling ratio",
      totals.peak ? (totals.bytes / totals.peak).toFixed(1) : "–",
      "allocated in all over the peak",
    ],
    [
      "Never freed",
      quantity(totals.leaked, "B"),
      `${formatCountOrQuantity(totals.leaked_count, "1")} blocks`,
    ],
    [
      "Peak allocation rate",
      quantity(rate, "B/s"),
      `mean ${isTimed ? quantity(totals.bytes / seconds, "B/s") : "–"}`,
    ],
    [
      "Time in malloc",
      known(malloc, "s"),
      isTimed && malloc ? `${share(malloc / seconds)} of the run` : "",
    ],
    [
      "Time in free",
      malloc ? quantity(free, "s") : NONE,
      isTimed && malloc ? `${share(free / seconds)} of the run` : "",
    ],
    [
      "Largest stack",
      known(most(threads.map((entry) => entry.deepest)), "B"),
      "of a thread, where it allocates",
    ],
    [
      "Variables",
      objects.length ? quantity(variable, "B") : NONE,
      `${variables.length} largest listed; ${quantity(perThread, "B")} for each thread`,
    ],
    [
      "Mapped directly",
      quantity(totals.mapped_bytes, "B"),
      `${formatCountOrQuantity(totals.mapped, "1")} calls of mmap`,
    ],
  ];
}

function TopFunctions({ model, metric, select }: HeapViewProps) {
  const entries = model.entries(metric, "function").filter((entry) => entry.exclusive > 0);
  if (entries.length === 0) return null;
  const total = metric.fold === "peak" ? model.profile.totals.peak : model.total(metric);
  return (
    <figure class="top">
      <figcaption>{metric.label}</figcaption>
      {entries.slice(0, TOP).map(({ location, exclusive }) => (
        <div key={location} class="top-row">
          <ShareBar part={exclusive / total} />
          <span class="numeric">{formatCountOrQuantity(exclusive, metric.unit)}</span>
          <button
            type="button"
            class="link"
            title={model.tree.locations.function[location]}
            onClick={() => select({ location, group: "function" }, "source")}
          >
            {model.functionName(location)}
          </button>
        </div>
      ))}
    </figure>
  );
}
