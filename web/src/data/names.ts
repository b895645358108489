// Short names for boxes: of a common kind only what tells them apart.

/** The names without the beginning and the end that all share, cut at separators. One name alone stays. */
export function distinctParts(names: readonly string[]): Map<string, string> {
  const parts = names.map((name) => name.split(/(?<=[;:,/ _.-])/));
  const most = Math.min(...parts.map((own) => own.length)) - 1;
  const same = (at: (own: string[]) => string) => parts.every((own) => at(own) === at(parts[0]!));
  let head = 0;
  while (names.length > 1 && head < most && same((own) => own[head]!)) head += 1;
  let tail = 0;
  while (names.length > 1 && head + tail < most && same((own) => own.at(-1 - tail)!)) tail += 1;
  return new Map(
    names.map((name, k) => [
      name,
      parts[k]!.slice(head, parts[k]!.length - tail)
        .join("")
        .replace(/[;:,/ _.-]$/, ""),
    ]),
  );
}

/** A name of at most ``length`` characters: the end of a longer one, which tells names of a family apart. */
export function shortened(name: string, length: number): string {
  return name.length > length ? `…${name.slice(1 - length)}` : name;
}
