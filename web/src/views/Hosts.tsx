// What the hosts are. A fact that all hosts share is said once; one that differs is said per value, with the
// hosts that have it, because on a cluster the host that differs is the thing to see. It stays short for
// any number of hosts.

import { fold } from "../data/hosts";
import type { Context, Scalar } from "../data/records";
import { bytes } from "../data/format";
import { Table, type Column } from "./Table";

interface FactRow {
  fact: string;
  value: string;
  hosts: string[];
  total: number; // hosts of the run
  odd: boolean; // differs from what most hosts have
}

const COLUMNS: Column<FactRow>[] = [
  { id: "fact", header: "Fact", value: (row) => row.fact },
  { id: "value", header: "Value", value: (row) => row.value },
  {
    id: "hosts",
    header: "Hosts",
    value: (row) => row.hosts.length,
    show: (row) =>
      row.hosts.length === row.total ? (
        <span class="soft">{row.total === 1 ? row.hosts[0] : `all ${row.total}`}</span>
      ) : (
        <span class={row.odd ? "odd" : undefined}>
          {row.odd && "≠ "}
          {fold(row.hosts)}
        </span>
      ),
  },
];

const OWN = 0.5; // a fact with a value for every second host is a host's own, like its uptime: not "odd"

export function Hosts({ contexts }: { contexts: Context[] }) {
  return (
    <section id="hosts">
      <h2>Hosts</h2>
      <p class="soft">Facts read from each host; ≠ marks those that differ from what most hosts have.</p>
      <Table caption="Facts of the hosts" columns={COLUMNS} rows={factRows(contexts)} />
    </section>
  );
}

function factRows(contexts: Context[]): FactRow[] {
  const facts = new Map<string, Map<string, string[]>>();
  for (const { subject, facts: own = {} } of contexts) {
    for (const [fact, value] of Object.entries(own)) {
      const values = facts.get(fact) ?? new Map<string, string[]>();
      facts.set(fact, values);
      const text = factText(fact, value);
      values.set(text, [...(values.get(text) ?? []), subject?.host ?? "this machine"]);
    }
  }
  const total = contexts.length;
  return [...facts].sort().flatMap(([fact, values]) => {
    const byCount = [...values].sort((a, b) => b[1].length - a[1].length);
    const own = values.size > 1 && values.size >= total * OWN;
    return byCount.map(([value, hosts], index) => ({ fact, value, hosts, total, odd: !own && index > 0 }));
  });
}

/** Sizes in bytes are read as sizes; every other fact is shown as it was recorded. */
function factText(fact: string, value: Scalar): string {
  if (typeof value === "number" && /(^|[._])(memory|bytes|cache)([._]|$)/.test(fact) && value >= 1024) {
    return bytes(value);
  }
  return String(value);
}
