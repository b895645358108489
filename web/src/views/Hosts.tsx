// Facts about hosts. A fact that all hosts share has one line; one that differs has a line for each value with the
// hosts that have it, because a differing host is what matters. The table stays short for any number of hosts.

import { fold, naturally } from "../data/hosts";
import type { Context, Scalar } from "../data/records";
import { quantity } from "../data/format";
import { Table, type Column } from "./Table";

interface FactRow {
  fact: string;
  values: [value: string, hosts: string[]][]; // one value; all values if nearly every host has another
  total: number; // hosts of the run
  isDifferent: boolean; // differs from what most hosts have
}

const COLUMNS: Column<FactRow>[] = [
  { id: "fact", header: "Fact", value: (row) => row.fact },
  {
    id: "value",
    header: "Value",
    value: (row) => row.values[0]![0],
    show: (row) => (row.values.length === 1 ? row.values[0]![0] : <OwnValues row={row} />),
  },
  {
    id: "hosts",
    header: "Hosts",
    value: (row) => row.values.reduce((sum, [, hosts]) => sum + hosts.length, 0),
    show: (row) => <FactHosts row={row} />,
  },
];

function OwnValues({ row }: { row: FactRow }) {
  return (
    <details>
      <summary>{row.values.length} different values</summary>
      <ul class="own-values">
        {row.values.map(([value, hosts]) => (
          <li key={value}>
            {fold(hosts)}: {value}
          </li>
        ))}
      </ul>
    </details>
  );
}

function FactHosts({ row }: { row: FactRow }) {
  const hosts = row.values.flatMap(([, names]) => names);
  if (hosts.length === row.total)
    return <span class="soft">{row.total === 1 ? hosts[0] : `all ${row.total}`}</span>;
  return (
    <span class={row.isDifferent ? "odd" : undefined}>
      {row.isDifferent && "≠ "}
      {fold(hosts)}
    </span>
  );
}

// A fact with a value for every second host is individual, like an uptime, and no host is marked as different.
const PER_HOST_SHARE = 0.5;
const MAX_LISTED = 3; // values; a fact with at most this many has a line for each value in any case

export function Hosts({ contexts }: { contexts: Context[] }) {
  const devices = contexts.filter((context) => context.subject?.device);
  return (
    <section id="hosts">
      <h2>Hosts</h2>
      <p class="soft">
        Facts read from each host; ≠ marks those that differ from what most hosts have.
      </p>
      <Table
        caption="Facts of the hosts"
        columns={COLUMNS}
        rows={factRows(contexts.filter((context) => !context.subject?.device))}
      />
      {devices.length > 0 && (
        <>
          <h3>Devices</h3>
          <Table
            caption="Facts of their devices"
            columns={DEVICE_COLUMNS}
            rows={deviceRows(devices)}
          />
        </>
      )}
    </section>
  );
}

interface DeviceRow {
  device: string;
  numa: number | undefined;
  facts: string;
  hosts: string[];
}

const DEVICE_COLUMNS: Column<DeviceRow>[] = [
  { id: "device", header: "Device", value: (row) => row.device },
  { id: "numa", header: "NUMA node", numeric: true, value: (row) => row.numa },
  { id: "facts", header: "Facts", value: (row) => row.facts },
  { id: "hosts", header: "Hosts", value: (row) => fold(row.hosts) },
];

/** One row for each device; hosts whose devices have the same facts share a row. */
function deviceRows(contexts: Context[]): DeviceRow[] {
  const rows = new Map<string, DeviceRow>();
  for (const { subject = {}, facts = {} } of contexts) {
    const texts = Object.entries(facts).map(
      ([fact, value]) => `${fact.split(".").slice(1).join(".")} ${factText(fact, value)}`,
    );
    const [device, numa] = [subject.device ?? "", subject.numa ?? undefined];
    const key = JSON.stringify([device, numa, texts]);
    const row = rows.get(key) ?? { device, numa, facts: texts.join(", "), hosts: [] };
    rows.set(key, row);
    const host = subject.host ?? "this machine";
    if (!row.hosts.includes(host)) row.hosts.push(host); // a host has a context from each engine that ran there
  }
  return [...rows.values()].sort((a, b) => naturally(a.device, b.device));
}

function factRows(contexts: Context[]): FactRow[] {
  const byHost = new Map<string, Record<string, Scalar>>(); // a host has a context from each engine that ran there
  for (const { subject, facts = {} } of contexts) {
    const host = subject?.host ?? "this machine";
    byHost.set(host, { ...byHost.get(host), ...facts });
  }
  const facts = new Map<string, Map<string, string[]>>();
  for (const [host, hostFacts] of byHost) {
    for (const [fact, value] of Object.entries(hostFacts)) {
      const values = facts.get(fact) ?? new Map<string, string[]>();
      facts.set(fact, values);
      const text = factText(fact, value);
      const hosts = values.get(text) ?? [];
      values.set(text, hosts);
      hosts.push(host);
    }
  }
  const total = byHost.size;
  return [...facts].sort().flatMap(([fact, hostsByValue]): FactRow[] => {
    const values = [...hostsByValue].sort(
      (a, b) => b[1].length - a[1].length || naturally(a[1][0]!, b[1][0]!),
    );
    if (values.length > MAX_LISTED && values.length >= total * PER_HOST_SHARE)
      return [{ fact, values, total, isDifferent: false }];
    return values.map((value, index) => ({ fact, values: [value], total, isDifferent: index > 0 }));
  });
}

// Facts that are rates, by the end of their names.
const RATES: [ends: RegExp, unit: string][] = [
  [/^(interface\.speed|rdma\.rate)$/, "B/s"],
  [/^pcie\..*speed(_max)?$/, "T/s"], // transfers, one lane
];

/** Sizes in bytes are read as sizes, rates as rates; every other fact is shown as it was recorded. */
function factText(fact: string, value: Scalar): string {
  const unit = RATES.find(([ends]) => ends.test(fact))?.[1];
  if (typeof value === "number" && unit === "T/s") return `${value / 1e9} GT/s`;
  if (typeof value === "number" && unit) return quantity(value, unit);
  if (
    typeof value === "number" &&
    /(^|[._])(memory|bytes|cache)([._]|$)/.test(fact) &&
    value >= 1024
  ) {
    return quantity(value, "B");
  }
  return String(value);
}
