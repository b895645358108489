// The main figures of a run for the tiles of the first screen: a network's bandwidth and latency; the rates of parallel
// I/O, and whether the bytes were durable when the rate was taken.

import { exactSize, quantity } from "./format";
import type { Measurement, RunInfo } from "./records";
import { DEVICE, figuresOf, HDF5, IOR, SOLVER, type Figure } from "./storage";
import { medianOf } from "./sweep";

export interface Tile {
  name: string;
  value: string;
  note: string;
}

export function headline(
  measurements: readonly Measurement[],
  options: RunInfo["options"] = {},
): Tile[] {
  return [...ofNetwork(measurements), ...ofStorage(measurements, options)];
}

function ofNetwork(measurements: readonly Measurement[]): Tile[] {
  const tiles: Tile[] = [];
  const points = measurements.filter((m) => m.name.startsWith("network.") && !m.subject?.host);
  const extreme = (metric: string, better: (a: number, b: number) => boolean) =>
    points
      .filter((m) => m.metric === metric && medianOf(m) !== undefined)
      .reduce<Measurement | undefined>(
        (best, m) => (!best || better(medianOf(m)!, medianOf(best)!) ? m : best),
        undefined,
      );
  const params = (m: Measurement) =>
    [quantity(Number(m.params?.["size"]), "B"), m.params?.["op"]].filter(Boolean).join(" ");
  const highest = extreme("bandwidth", (a, b) => a > b);
  if (highest)
    tiles.push({
      name: "Aggregate bandwidth",
      value: quantity(medianOf(highest), "B/s"),
      note: `best, at ${params(highest)}`,
    });
  const lowest = extreme("latency", (a, b) => a < b);
  if (lowest)
    tiles.push({
      name: "Latency",
      value: quantity(medianOf(lowest), "s"),
      note: `least p50, at ${params(lowest)}`,
    });
  const checked = points.filter((m) => m.metric === "corrupted");
  if (checked.length > 0) {
    const corrupted = checked.reduce((sum, m) => sum + (medianOf(m) ?? 0), 0);
    tiles.push({
      name: "Corrupted messages",
      value: String(corrupted),
      note: corrupted === 0 ? "every payload verified" : "of the payloads verified",
    });
  }
  return tiles;
}

// The benchmarks of storage and their rates.
const RATES: [name: string, metric: string][] = [
  [IOR, "bandwidth"],
  [SOLVER, "bandwidth"],
  [HDF5, "observed_rate"],
  [DEVICE, "bandwidth"],
];

function ofStorage(measurements: readonly Measurement[], options: RunInfo["options"]): Tile[] {
  const rates = RATES.flatMap(([name, metric]) =>
    figuresOf(measurements, name).filter((figure) => figure.metric === metric),
  );
  const best = ["write", "read"].flatMap((op) => {
    const ofOperation = rates.filter(({ params }) => params["op"] === op);
    return ofOperation.length > 0
      ? [ofOperation.reduce((a, b) => (b.value > a.value ? b : a))]
      : [];
  });
  const written = best.find(({ params }) => params["op"] === "write");
  return [
    ...best.map((figure) => ({
      name: figure.params["op"] === "write" ? "Write" : "Read",
      value: quantity(figure.value, figure.unit),
      note: `median of the rounds, ${conditions(figure)}`,
    })),
    ...(written && written.name !== DEVICE ? [durability(written, options)] : []),
  ];
}

/** The conditions of the best rate: "accelerated, own data, transfers of 1 MiB, 4 ranks". */
function conditions({ params }: Figure): string {
  const { io, data, transfer, ranks, threads } = params;
  const count = (value: unknown, noun: string) =>
    value === undefined ? undefined : `${value} ${noun}${value === 1 ? "" : "s"}`;
  return [
    io,
    data === undefined ? undefined : `${data} data`,
    transfer === undefined ? undefined : `transfers of ${exactSize(Number(transfer))}`,
    count(ranks, "rank"),
    count(threads, "thread"),
  ]
    .filter((part) => part !== undefined)
    .join(", ");
}

/** Whether the written bytes survive the loss of a node when the time of the rate ends, and by which level. */
function durability({ params }: Figure, options: RunInfo["options"]): Tile {
  const name = "Durable when timed";
  if (params["io"] === "accelerated")
    return options?.["until"] === "memory"
      ? { name, value: "no", note: "level memory: close returns when nodes' memory has the bytes" }
      : {
          name,
          value: "yes",
          note: "level file: close returns when the file system has the bytes",
        };
  if (params["fsync"] === true) return { name, value: "yes", note: "stock I/O, with a sync" };
  if (params["fsync"] === false)
    return { name, value: "no", note: "stock I/O without a sync: caches may hold the bytes" };
  return { name, value: "not known", note: "stock I/O: whether it was synced is not recorded" };
}
