// The view of the sizes and lifetimes of blocks, of the whole program or of a function.

import { useMemo } from "preact/hooks";

import { exactSize, quantity } from "../../data/format";
import type { HeapModel } from "../../data/heap";
import { Bins, type BinsProps } from "../Bins";
import { Choice } from "../Choice";
import { formatCountOrQuantity, share } from "../profile/Figure";
import type { Selection } from "../profile/props";
import type { HeapViewProps } from "./props";

const TICKS = 16; // ticks of the shortest lifetime; see HeapHistograms
const MAX_FUNCTIONS = 100; // to choose from
const MAX_FREQUENT = 25; // sizes in the table of the most frequent ones

export function Sizes({ model, selection, select }: HeapViewProps) {
  const { profile, tree } = model;
  const histograms = useMemo(() => histogramsOf(model, selection), [model, selection]);
  const functions = model
    .entries(model.metric("count"), "function")
    .filter((entry) => entry.exclusive > 0)
    .slice(0, MAX_FUNCTIONS);
  const chosen = selection ? tree.locations.function_id[selection.location]! : -1;
  const listed = functions.some((entry) => entry.location === chosen);
  return (
    <>
      <div class="controls">
        <Choice
          label="Function"
          value={String(chosen)}
          options={[
            ["-1", "the whole program"],
            ...(chosen >= 0 && !listed
              ? [[String(chosen), model.functionName(chosen)] as [string, string]]
              : []),
            ...functions.map(({ location }): [string, string] => [
              String(location),
              model.functionName(location),
            ]),
          ]}
          onChange={(location) =>
            select(
              location === "-1" ? undefined : { location: Number(location), group: "function" },
            )
          }
        />
      </div>
      <div class="charts">
        <Blocks
          title="Blocks by size"
          counts={histograms.sizes}
          name={(k) => `${exactSize(k ? 2 ** k : 0)} – ${exactSize(2 ** (k + 1))}`}
        />
        <Blocks
          title="Blocks by lifetime"
          counts={histograms.lifetimes}
          name={(k) => `from ${quantity(k ? TICKS * 2 ** k * profile.tick : 0, "s")}`}
        />
      </div>
      {chosen < 0 && <LifetimeOverSize model={model} />}
      {chosen < 0 && (
        <Frequent
          sizes={profile.frequent_size}
          counts={profile.frequent_count}
          total={profile.totals.count}
        />
      )}
    </>
  );
}

/** Blocks by size and by lifetime, of the selected function or of the whole program. */
function histogramsOf(
  model: HeapModel,
  selection: Selection | undefined,
): { sizes: number[]; lifetimes: number[] } {
  const { profile } = model;
  if (!selection) {
    return {
      sizes: profile.sizes,
      lifetimes: profile.lifetimes.map((row) => row.reduce((sum, count) => sum + count, 0)),
    };
  }
  const stored = profile.histograms[model.groupKey("function")(selection.location)];
  const bins = ([first, ...counts]: number[]) =>
    profile.sizes.map((_, k) => counts[k - first!] ?? 0);
  return { sizes: bins(stored?.sizes ?? [0]), lifetimes: bins(stored?.lifetimes ?? [0]) };
}

function Blocks(bins: Omit<BinsProps, "share">) {
  return (
    <figure>
      <figcaption>{bins.title}</figcaption>
      {bins.counts.every((count) => count === 0) && <p class="soft">None.</p>}
      <Bins {...bins} share={share} />
    </figure>
  );
}

/** The map of freed blocks: lifetimes upwards, sizes to the right; darker cells have more blocks. */
function LifetimeOverSize({ model }: { model: HeapModel }) {
  const { lifetimes, tick } = model.profile;
  const rows = lifetimes
    .map((row, k) => ({ row, k }))
    .filter(({ row }) => row.some((count) => count > 0));
  if (rows.length === 0) return null;
  const used = lifetimes[0]!.map((_, size) => rows.some(({ row }) => row[size]! > 0));
  const from = used.indexOf(true);
  const to = used.lastIndexOf(true) + 1;
  const largest = Math.log1p(Math.max(...rows.map(({ row }) => Math.max(...row))));
  const high = rows.at(-1)!.k;
  const low = rows[0]!.k;
  const levels = Array.from({ length: high - low + 1 }, (_, k) => high - k);
  return (
    <figure class="lifetimes">
      <figcaption>Lifetime over size</figcaption>
      <div
        class="grid"
        role="img"
        aria-label="Freed blocks by lifetime and size."
        style={{ gridTemplateColumns: `auto repeat(${to - from}, minmax(8px, 1fr))` }}
      >
        {levels.map((level) => (
          <>
            <span class="axis">{quantity(TICKS * 2 ** level * tick, "s")}</span>
            {lifetimes[level]!.slice(from, to).map((count, k) => (
              <span
                class="cell"
                style={{ "--heat": count ? 0.12 + (0.88 * Math.log1p(count)) / largest : 0 }}
                title={
                  count
                    ? `${count.toLocaleString("en")} blocks of ${exactSize(2 ** (from + k))} and more that lived ${quantity(TICKS * 2 ** level * tick, "s")} and more`
                    : ""
                }
              />
            ))}
          </>
        ))}
        <span />
        {used.slice(from, to).map((_, k) => (
          <span class="axis below">{(from + k) % 2 === 0 ? exactSize(2 ** (from + k)) : ""}</span>
        ))}
      </div>
    </figure>
  );
}

function Frequent({ sizes, counts, total }: { sizes: number[]; counts: number[]; total: number }) {
  return (
    <div class="table-box">
      <table>
        <caption>The most frequent sizes</caption>
        <thead>
          <tr>
            <th scope="col" class="numeric">
              size
            </th>
            <th scope="col" class="numeric">
              blocks
            </th>
            <th scope="col" class="numeric">
              share
            </th>
          </tr>
        </thead>
        <tbody>
          {sizes.slice(0, MAX_FREQUENT).map((size, k) => (
            <tr key={size}>
              <td class="numeric">{size.toLocaleString("en")} B</td>
              <td class="numeric">{formatCountOrQuantity(counts[k]!, "1")}</td>
              <td class="numeric">{share(counts[k]! / total)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
