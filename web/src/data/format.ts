// Formats values for people. Records hold SI base units ("B", "B/s", "s", "1/s", "1"); only this file and its twin,
// python/assay/records/units.py, convert them. That file states the rule, and both pass the cases in
// tests/fixtures/quantities.json: bytes are binary (KiB), rates are decimal (MB/s), three significant digits.

type Step = [factor: number, label: string];

const BYTES: Step[] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].map((label, k) => [
  1024 ** k,
  label,
]);
const PREFIXES = ["", "k", "M", "G", "T", "P"];
// The units that values are shown in, in ascending order.
const DISPLAY_UNITS: Record<string, Step[]> = {
  B: BYTES,
  "B/s": PREFIXES.map((prefix, k) => [1000 ** k, `${prefix}B/s`]),
  "1/s": PREFIXES.map((prefix, k) => [1000 ** k, `${prefix || "1"}/s`]),
  s: [
    [1e-9, "ns"],
    [1e-6, "µs"],
    [1e-3, "ms"],
    [1, "s"],
  ],
};

export const NONE = "–";

/** Rounds to three significant digits, and from 1000 to 1024 to a whole number. */
function rounded(value: number): number {
  const size = Math.abs(value);
  return size >= 1000 && size <= 1024 ? Math.round(value) : Number(value.toPrecision(3));
}

/** Three significant digits without trailing zeros or an exponent: 12.3, 0.0123, 1230, 2. */
export function digits(value: number): string {
  const number = rounded(value);
  if (number === 0) return "0";
  const decimals = 2 - Number(number.toExponential().split("e")[1]);
  if (decimals <= 0) return number.toFixed(0);
  return number.toFixed(Math.min(20, decimals)).replace(/\.?0+$/, "");
}

/** A parameter's size in bytes, exactly: 1048576 is "1 MiB", 1000 is "1000 B". */
export function exactSize(value: number): string {
  const [factor, label] =
    BYTES.findLast(([factor]) => value !== 0 && value % factor === 0) ?? BYTES[0]!;
  return `${value / factor} ${label}`;
}

/** A value in the base unit `unit`, with the multiple that suits; a dash if there is no value. */
export function quantity(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (unit === "1" || unit === "") {
    if (Number.isInteger(value)) return String(value);
    return Math.abs(value) < 1 ? `${digits(value * 100)} %` : digits(value); // below one it is a share
  }
  const steps = DISPLAY_UNITS[unit];
  if (!steps) return `${digits(value)} ${unit}`;
  if (value === 0) return `0 ${unit}`;
  let index = Math.max(
    0,
    steps.findLastIndex(([factor]) => Math.abs(value) >= factor),
  );
  const base = unit === "B" ? 1024 : 1000;
  // 999.96 µs rounds to "1 ms", never to "1000 µs".
  if (index + 1 < steps.length && Math.abs(rounded(value / steps[index]![0])) >= base) index += 1;
  const [factor, label] = steps[index]!;
  return `${digits(value / factor)} ${label}`;
}

const MAX_SHARE = 10; // larger differences are shown as a bound

/** A relative difference with its sign: -0.49 is "−49 %". */
export function percent(value: number | null | undefined, signed = true): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const magnitude = Math.abs(value * 100);
  if (signed && Math.abs(value) >= MAX_SHARE)
    return value > 0 ? `> +${MAX_SHARE * 100} %` : `< −${MAX_SHARE * 100} %`;
  const text = magnitude < 10 ? magnitude.toFixed(1) : magnitude.toFixed(0);
  const zero = Number(text) === 0;
  const sign = zero ? (signed ? "±" : "") : value < 0 ? "−" : signed ? "+" : "";
  return `${sign}${text} %`;
}

/** A moment (ISO 8601) to the second, in UTC, whatever the reader's locale. */
export function moment(iso: string): string {
  const date = new Date(iso);
  return Number.isNaN(date.valueOf())
    ? iso
    : `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** A duration between two moments: "1 min 12 s". */
export function duration(from: string, to: string): string {
  const seconds = Math.round((Date.parse(to) - Date.parse(from)) / 1000);
  if (!Number.isFinite(seconds)) return NONE;
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? `${minutes} min ${seconds % 60} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// Parameters that are shown as a count ("4 threads").
const COUNTS: Record<string, string> = {
  inflight: "in flight",
  clients: "client",
  servers: "server",
  peers: "peer",
  threads: "thread",
  cores: "core",
};
// Parameters that are left out where they say nothing: no line was read before it was stored.
const NOTHING = new Map([
  ["line_reads", "none"],
  ["stores", "none"],
]);
// Parameters that are shown without their name.
const NAMELESS = new Set(["op", "operation", "schedule"]);
// Parameters that are quantities, with their units.
const UNITS: Record<string, string> = {
  budget: "s",
  buffer: "B",
  offered: "B/s",
  rate: "B/s",
  requested_rate: "B/s",
  seconds: "s",
  sender_late: "s",
  sent: "B/s",
};

/** Parameters as text: "1 MiB, send, 1 in flight"; others as "name value". */
export function formatParameters(params: Record<string, string | number | boolean>): string {
  return Object.entries(params)
    .filter(([name, value]) => NOTHING.get(name) !== value)
    .map(([name, value]) => {
      if (name === "size" && typeof value === "number") return exactSize(value);
      if (typeof value === "boolean") return value ? name : `not ${name}`;
      if (NAMELESS.has(name)) return String(value);
      if (UNITS[name] && typeof value === "number")
        return `${name.replace("_", " ")} ${quantity(value, UNITS[name])}`;
      if (COUNTS[name])
        return `${value} ${COUNTS[name]}${value === 1 || name === "inflight" ? "" : "s"}`;
      return `${name.replaceAll("_", " ")} ${value}`;
    })
    .join(", ");
}
