// Values as people read them. Records are in SI base units; this file is the only place that knows
// otherwise. Message sizes are binary (KiB), rates are decimal (MB/s), and each says so in its unit.

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const DECIMAL: [number, string][] = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
  [1, ""],
];
const TIMES: [number, string][] = [
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
  [1e-9, "ns"],
];

export const NONE = "–";

/** Three significant digits, never an exponent: 12.3, 0.0123, 1230. */
export function digits(value: number, significant = 3): string {
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(significant));
  const decimals = significant - 1 - Math.floor(Math.log10(Math.abs(rounded)));
  return rounded.toFixed(Math.min(20, Math.max(0, decimals)));
}

/** A size in bytes, exact where it is a whole number of its unit: 1 MiB, 1.50 KiB. */
export function bytes(value: number): string {
  let scaled = value;
  let step = 0;
  while (Math.abs(scaled) >= 1024 && step < BINARY.length - 1) {
    scaled /= 1024;
    step += 1;
  }
  return `${Number.isInteger(scaled) ? scaled : digits(scaled)} ${BINARY[step]}`;
}

/** A value with its unit, as records name units: "B/s", "s", "1/s", "B", "1". */
export function quantity(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (unit === "B") return bytes(value);
  if (unit === "s") return scaled(value, TIMES, "");
  if (unit === "B/s") return scaled(value, DECIMAL, "B/s");
  if (unit === "1/s") return scaled(value, DECIMAL, "/s");
  if (unit === "1" || unit === "") {
    if (Number.isInteger(value)) return String(value);
    return Math.abs(value) < 1 ? `${digits(value * 100)} %` : digits(value); // below one it is a share
  }
  return `${digits(value)} ${unit}`;
}

function scaled(value: number, steps: [number, string][], unit: string): string {
  // Rounded first, so that 999.96 µs becomes 1.00 ms and not 1000 µs.
  const size = Math.abs(Number(value.toPrecision(3)));
  const [factor, prefix] = steps.find(([least]) => size >= least) ?? steps[steps.length - 1]!;
  return `${digits(value / factor)} ${prefix}${unit}`.trimEnd();
}

/** A relative difference with its sign: -0.49 is "−49 %". */
export function percent(value: number | null | undefined, signed = true): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const magnitude = Math.abs(value * 100);
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

// Parameters that read best as a count of something, and those whose value says it all.
const COUNTS: Record<string, string> = {
  inflight: "in flight",
  clients: "client",
  servers: "server",
  peers: "peer",
  threads: "thread",
  cores: "core",
};
const NAMELESS = new Set(["op", "operation", "schedule"]);
// And those that are quantities.
const UNITS: Record<string, string> = {
  buffer: "B",
  offered: "B/s",
  rate: "B/s",
  seconds: "s",
  sender_late: "s",
  sent: "B/s",
  wanted: "B/s",
};

/** Parameters in words: "1 MiB, send, 1 in flight"; those unknown here as "name value". */
export function parameters(params: Record<string, string | number | boolean>): string {
  return Object.entries(params)
    .map(([name, value]) => {
      if (name === "size" && typeof value === "number") return bytes(value);
      if (typeof value === "boolean") return value ? name : `not ${name}`;
      if (NAMELESS.has(name)) return String(value);
      if (UNITS[name] && typeof value === "number")
        return `${name.replace("_", " ")} ${quantity(value, UNITS[name])}`;
      if (COUNTS[name])
        return `${value} ${COUNTS[name]}${value === 1 || name === "inflight" ? "" : "s"}`;
      return `${name} ${value}`;
    })
    .join(", ");
}
