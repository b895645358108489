// A histogram as rows of bars, which can be read as a table: the bins from the first to the last that holds
// something.

export interface BinsProps {
  title: string;
  counts: number[];
  name: (k: number) => string;
  share: (part: number) => string;
}

export function Bins({ title, counts, name, share }: BinsProps) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  const highest = Math.max(...counts);
  const from = counts.findIndex((count) => count > 0);
  const to = counts.findLastIndex((count) => count > 0) + 1;
  return (
    <div class="bars-plot" role="table" aria-label={title}>
      {counts.slice(Math.max(0, from), to).map((count, k) => (
        <div class="bars-row" role="row" key={k}>
          <span role="rowheader">{name(from + k)}</span>
          <span class="bars-track" aria-hidden="true">
            <span class="bars-bar" style={{ width: `${(95 * count) / highest}%` }} />
          </span>
          <span class="numeric" role="cell">
            {count.toLocaleString("en")} <small>{share(count / total)}</small>
          </span>
        </div>
      ))}
    </div>
  );
}
