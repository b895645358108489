// Host names: their natural order, and the folded form of HPC tools (node[1-48,50]).

const ORDER = new Intl.Collator("en", { numeric: true });

export function naturally(a: string, b: string): number {
  return ORDER.compare(a, b);
}

const NUMBERED = /^(.*?)(\d+)(\D*)$/;

/** Folds names that differ in their last number only: h0, h1, h2, x -> "h[0-2],x". Zeros are kept. */
export function fold(names: readonly string[]): string {
  const padded = new Set<string>(); // families and widths with a number that begins with 0
  for (const name of names) {
    const [, head, number = "", tail] = NUMBERED.exec(name) ?? [];
    if (number.length > 1 && number.startsWith("0"))
      padded.add(JSON.stringify([head, tail, number.length]));
  }
  const groups = new Map<string, { head: string; tail: string; numbers: string[] }>();
  for (const name of [...names].sort(naturally)) {
    const [, head = name, number = "", tail = ""] = NUMBERED.exec(name) ?? [];
    // Padded numbers fold only with numbers of the same width: n08 and n10 are a family, n9 is another.
    const width = padded.has(JSON.stringify([head, tail, number.length])) ? number.length : 0;
    const key = JSON.stringify([head, tail, number === "" ? "" : width || "plain"]);
    const group = groups.get(key) ?? { head, tail, numbers: [] };
    if (number !== "") group.numbers.push(number);
    groups.set(key, group);
  }
  return [...groups.values()]
    .map(({ head, tail, numbers }) => head + ranges(numbers) + tail)
    .join(",");
}

function ranges(numbers: string[]): string {
  const runs: [string, string][] = [];
  for (const number of numbers) {
    const last = runs.at(-1);
    if (last && Number(number) === Number(last[1]) + 1) last[1] = number;
    else runs.push([number, number]);
  }
  if (runs.length === 0) return "";
  const text = runs.map(([from, to]) => (from === to ? from : `${from}-${to}`)).join(",");
  return numbers.length === 1 ? text : `[${text}]`;
}
