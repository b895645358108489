// Reads the run from the page: base64, gzip, then JSON lines, of which the first is run.json. Each line is parsed
// when it arrives, and pair rows are packed at once, so that the page never holds the whole text.

import type { HeapPage } from "./heapProfile";
import type { NumaPage } from "./numaProfile";
import { MatrixBuilder, type Matrix } from "./matrix";
import { withoutIterations } from "./sweep";
import type {
  AnyRecord,
  Capacity,
  Comparison,
  Context,
  Corruption,
  Failure,
  Finding,
  Measurement,
  Pairs,
  RunInfo,
  Verdict,
} from "./records";

/** A pair row without its values, which are in a matrix: enough to cite it as evidence. */
export type PairsHead = Omit<Pairs, "values" | "peers"> & { count: number };

export interface Run {
  info: RunInfo;
  measurements: Measurement[];
  matrices: Matrix[];
  verdicts: Verdict[];
  findings: Finding[];
  contexts: Context[];
  failures: Failure[];
  corruptions: Corruption[];
  capacities: Capacity[]; // the network's model, where one was fitted
  comparisons: Comparison[]; // its curves, measured and simulated
  heaps: HeapPage[]; // profiles, the largest process first
  placements: NumaPage[]; // NUMA profiles, those that count accesses first
  byId: Map<number, Measurement | PairsHead>; // for the evidence of verdicts and findings
}

export async function loadRun(base64: string): Promise<Run> {
  const lines = textLines(unpack(base64));
  const first = await lines.next();
  if (first.done) throw new Error("the report holds no run");
  const run: Run = {
    info: JSON.parse(first.value) as RunInfo,
    measurements: [],
    matrices: [],
    verdicts: [],
    findings: [],
    contexts: [],
    failures: [],
    corruptions: [],
    capacities: [],
    comparisons: [],
    heaps: [],
    placements: [],
    byId: new Map(),
  };
  const builders = new Map<string, MatrixBuilder>();
  for await (const line of lines) addLine(run, builders, JSON.parse(line) as AnyLine);
  run.matrices = [...builders.values()].map((builder) => builder.build(run.info.hosts ?? []));
  return run;
}

type AnyLine = AnyRecord | HeapPage | NumaPage;

function addLine(run: Run, builders: Map<string, MatrixBuilder>, record: AnyLine): void {
  switch (record.kind) {
    case "measurement":
      run.byId.set(record.id ?? 0, record);
      run.measurements.push(record);
      break;
    case "pairs": {
      const { values: _values, peers = [], ...head } = record;
      run.byId.set(record.id ?? 0, { ...head, count: peers.length });
      const params = withoutIterations(record.params);
      const key = JSON.stringify([record.name, record.metric, ...Object.entries(params).sort()]);
      const builder =
        builders.get(key) ?? new MatrixBuilder(key, { ...record, params, values: [], peers: [] });
      builders.set(key, builder);
      builder.add(record);
      break;
    }
    case "verdict":
      run.verdicts.push(record);
      break;
    case "finding":
      run.findings.push(record);
      break;
    case "context":
      run.contexts.push(record);
      break;
    case "failure":
      run.failures.push(record);
      break;
    case "corruption":
      run.corruptions.push(record);
      break;
    case "capacity":
      run.capacities.push(record);
      break;
    case "comparison":
      run.comparisons.push(record);
      break;
    case "heap":
      run.heaps.push(record);
      break;
    case "numa":
      run.placements.push(record);
  }
}

function unpack(base64: string): ReadableStream<string> {
  const binary = atob(base64.trim());
  const packed = new Uint8Array(binary.length);
  for (let k = 0; k < binary.length; k += 1) packed[k] = binary.charCodeAt(k);
  return new Blob([packed])
    .stream()
    .pipeThrough(new DecompressionStream("gzip"))
    .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array<ArrayBuffer>>);
}

async function* textLines(stream: ReadableStream<string>): AsyncGenerator<string> {
  const reader = stream.getReader();
  let parts: string[] = []; // of a line whose end has not arrived yet
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    let start = 0;
    for (let end = value.indexOf("\n"); end >= 0; end = value.indexOf("\n", start)) {
      yield parts.join("") + value.slice(start, end);
      parts = [];
      start = end + 1;
    }
    if (start < value.length) parts.push(value.slice(start));
  }
  if (parts.length > 0) yield parts.join("");
}
