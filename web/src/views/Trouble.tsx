// Failures that ended a measurement early, and corrupted payloads. Shown before the figures, if there are any.

import { formatParameters } from "../data/format";
import type { Run } from "../data/load";
import type { Corruption } from "../data/records";
import { subjectText } from "./Judgement";
import { Table, type Column } from "./Table";

const COLUMNS: Column<Corruption>[] = [
  { id: "pair", header: "From → to", value: (record) => subjectText(record.subject) },
  { id: "name", header: "Measurement", value: (record) => record.name },
  { id: "params", header: "Message", value: (record) => formatParameters(record.params ?? {}) },
  { id: "message", header: "Number", numeric: true, value: (record) => record.message ?? 0 },
  {
    id: "offset",
    header: "First wrong byte at",
    numeric: true,
    value: (record) => record.offset ?? 0,
  },
  {
    id: "expected",
    header: "Expected",
    value: (record) => record.expected,
    show: (r) => <code>{r.expected}</code>,
  },
  {
    id: "observed",
    header: "Observed",
    value: (record) => record.observed,
    show: (r) => <code>{r.observed}</code>,
  },
];

export function Trouble({ run }: { run: Run }) {
  return (
    <>
      {run.failures.length > 0 && (
        <section id="failures">
          <h2>Failures</h2>
          <ul class="failures">
            {run.failures.map((failure, index) => (
              <li key={failure.id ?? index}>
                <strong>{failure.problem}</strong>
                {subjectText(failure.subject) && (
                  <span class="soft"> · {subjectText(failure.subject)}</span>
                )}
                {failure.fix && <p>Fix: {failure.fix}</p>}
              </li>
            ))}
          </ul>
        </section>
      )}
      {run.corruptions.length > 0 && (
        <section id="corruption">
          <h2>Corrupted payloads</h2>
          <Table
            caption="Messages that did not arrive as sent"
            columns={COLUMNS}
            rows={run.corruptions}
          />
        </section>
      )}
    </>
  );
}
