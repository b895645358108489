// The page of a heap profile: its main figures and its views.

import type { ComponentChildren } from "preact";

import { quantity } from "../../data/format";
import { HeapModel } from "../../data/heap";
import type { HeapPage } from "../../data/heapProfile";
import { isSum, type Metric } from "../../data/profile";
import { CallTree } from "../profile/CallTree";
import { formatCountOrQuantity, share } from "../profile/Figure";
import { Flame } from "../profile/Flame";
import { Functions } from "../profile/Functions";
import { LocationLink } from "../profile/LocationLink";
import { ProfilePage, type Headline, type Tab } from "../profile/ProfilePage";
import { Source } from "../profile/Source";
import { Stacks } from "../profile/Stacks";
import { FirstTouch } from "./FirstTouch";
import { Fragments } from "./Fragments";
import { OverTime } from "./OverTime";
import type { HeapViewProps } from "./props";
import { Ranks } from "./Ranks";
import { Reallocations } from "./Reallocations";
import { Sizes } from "./Sizes";
import { Summary } from "./Summary";
import { Threads } from "./Threads";
import { Variables } from "./Variables";

interface Props {
  pages: HeapPage[];
  /** Views of the run around the profile: findings, records. */
  others: Tab[];
}

export function Heap(props: Props) {
  return (
    <ProfilePage
      {...props}
      id="heap"
      subject="Memory"
      makeModel={(page) => new HeapModel(page)}
      metricOf={metricOf}
      headline={headline}
      notices={notices}
      tabs={tabs}
    />
  );
}

function metricOf(model: HeapModel, key = "bytes", view: string): Metric {
  const chosen = model.metric(key);
  return view === "flame" && !isSum(chosen) ? model.metric("bytes") : chosen;
}

/** The peak, what is left, and the line that holds most of the peak. */
function headline({ model, select }: HeapViewProps): Headline[] {
  const { totals, process, pools, trace } = model.profile;
  const worst = model.entries(model.metric("at_peak"), "line")[0];
  const figures: Headline[] = [
    {
      label: "Peak",
      value: quantity(totals.peak, "B"),
      note: `${formatCountOrQuantity(totals.peak_count, "1")} blocks, after ${quantity(totals.peak_seconds, "s")}`,
    },
    {
      label: process.detached || trace.cut_off ? "In use at the end" : "Not freed",
      value: quantity(totals.leaked, "B"),
      note: `${formatCountOrQuantity(totals.leaked_count, "1")} blocks`,
    },
  ];
  if (pools.length > 0)
    figures.push({
      label: "Runtime pools",
      value: quantity(
        pools.reduce((sum, pool) => sum + pool.bytes, 0),
        "B",
      ),
      note: `no leaks: ${pools.map((pool) => pool.name).join(", ")}`,
    });
  if (worst && worst.exclusive > 0 && totals.peak > 0)
    figures.push({
      label: "Worst line",
      value: `${share(worst.exclusive / totals.peak)} of the peak`,
      note: <LocationLink model={model} select={select} location={worst.location} />,
    });
  return figures;
}

function notices(page: HeapPage): string[] {
  if (page.left_out === 0) return page.problems;
  const count = page.left_out.toLocaleString("en");
  return [
    ...page.problems,
    `${count} calls with the smallest figures are left out of the call tree, the flame graph and the stacks.`,
  ];
}

function tabs(props: HeapViewProps, process: number): Tab[] {
  const { model } = props;
  const { touches, fragmentation, objects, variables } = model.profile;
  const { page } = model;
  const has = (metric: string) => model.total(model.metric(metric)) > 0;
  const showIf = (condition: unknown, show: () => ComponentChildren) =>
    condition ? show : undefined;
  return [
    {
      name: "summary",
      label: "Summary",
      show: () => (
        <>
          <Summary {...props} />
          {page.ranks.length > 0 && <Ranks ranks={page.ranks} />}
        </>
      ),
    },
    { name: "functions", label: "Functions", show: () => <Functions {...props} /> },
    { name: "source", label: "Source", show: () => <Source {...props} /> },
    { name: "tree", label: "Call tree", show: () => <CallTree {...props} key={process} /> },
    { name: "flame", label: "Flame graph", show: () => <Flame {...props} key={process} /> },
    { name: "stacks", label: "Stacks", show: () => <Stacks {...props} /> },
    { name: "threads", label: "Threads", show: () => <Threads {...props} /> },
    { name: "time", label: "Over time", show: () => <OverTime {...props} /> },
    { name: "sizes", label: "Sizes and lifetimes", show: () => <Sizes {...props} /> },
    {
      name: "leaks",
      label: "Leaks",
      show: showIf(has("leaked_count"), () => (
        <Stacks {...props} metric={model.metric("leaked")} selection={undefined} />
      )),
    },
    {
      name: "reallocations",
      label: "Reallocations",
      show: showIf(has("reallocated"), () => <Reallocations {...props} />),
    },
    {
      name: "touch",
      label: "First touch",
      show: touches ? () => <FirstTouch {...props} touches={touches} /> : undefined,
    },
    {
      name: "fragments",
      label: "Fragmentation",
      show: fragmentation ? () => <Fragments {...props} pages={fragmentation} /> : undefined,
    },
    {
      name: "variables",
      label: "Variables",
      show: showIf(objects.length + variables.length, () => <Variables {...props} />),
    },
  ];
}
