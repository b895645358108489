// The page of a NUMA profile: its main figures and its views.

import { NumaModel, remoteShare, sharePercent, split } from "../../data/numa";
import type { NumaPage } from "../../data/numaProfile";
import { isSum, type Metric } from "../../data/profile";
import { CallTree } from "../profile/CallTree";
import { formatCountOrQuantity } from "../profile/Figure";
import { Flame } from "../profile/Flame";
import { Functions } from "../profile/Functions";
import { LocationLink } from "../profile/LocationLink";
import { ProfilePage, type Headline, type Tab } from "../profile/ProfilePage";
import { Source } from "../profile/Source";
import { Stacks } from "../profile/Stacks";
import { Advice } from "./Advice";
import { FirstTouches } from "./FirstTouches";
import { Matrices } from "./Matrices";
import { Objects } from "./Objects";
import { OverTime } from "./OverTime";
import type { NumaViewProps } from "./props";
import { Summary } from "./Summary";
import { Threads } from "./Threads";
import "./numa.css";

interface Props {
  pages: NumaPage[];
  /** Views of the run around the profile: findings, records. */
  others: Tab[];
}

export function Numa(props: Props) {
  return (
    <ProfilePage
      {...props}
      id="numa"
      subject="Placement"
      makeModel={(page) => new NumaModel(page)}
      metricOf={metricOf}
      headline={headline}
      notices={notices}
      tabs={tabs}
    />
  );
}

function metricOf(model: NumaModel, key: string | undefined): Metric {
  return (
    model.metrics.find((item) => item.key === key && isSum(item)) ??
    model.metrics.find((item) => item.key === (model.isExact ? "remote" : "touched")) ??
    model.metrics[0] ??
    model.metric("accesses")
  );
}

/** The remote share, the object with most remote accesses (or of the first advice), and the nodes. */
function headline({ model, select }: NumaViewProps): Headline[] {
  const { nodes, objects, advice, process } = model.profile;
  const all = split(model.matrix);
  const nodeKind = process.emulated > 0 ? "emulated" : "real";
  const figures: Headline[] = [
    {
      label: model.isExact ? "Remote accesses" : "Remote first touches",
      value: sharePercent(remoteShare(model.matrix)),
      note: model.isExact
        ? `${formatCountOrQuantity(all.remote, "1")} of ${formatCountOrQuantity(all.local + all.remote, "1")}`
        : `of ${formatCountOrQuantity(all.local + all.remote, "B")}; later accesses were not counted`,
    },
  ];
  const remoteOf = (k: number) => split(model.counts(objects[k]!)).remote;
  const worst = model.isExact
    ? objects.reduce((best, _, k) => (best < 0 || remoteOf(k) > remoteOf(best) ? k : best), -1)
    : (advice[0]?.object ?? -1);
  const object = objects[worst];
  if (object && (!model.isExact || remoteOf(worst) > 0))
    figures.push({
      label: "Worst site",
      value: model.isExact
        ? `${sharePercent(remoteOf(worst) / all.remote)} of the remote accesses`
        : `${formatCountOrQuantity(split(object.touched).total, "B")} on one node`,
      note:
        object.site >= 0 ? (
          <LocationLink model={model} select={select} location={object.site} />
        ) : (
          object.name
        ),
    });
  figures.push({
    label: "Nodes",
    value: `${nodes.length} ${nodeKind}`,
    note: process.emulated > 0 ? "no access was slower for it" : "",
  });
  return figures;
}

function notices(page: NumaPage): string[] {
  const { problems } = page.profile;
  if (page.left_out === 0) return problems;
  const count = page.left_out.toLocaleString("en");
  return [
    ...problems,
    `${count} calls, objects and first touches with the smallest figures are left out.`,
  ];
}

function tabs(props: NumaViewProps, process: number): Tab[] {
  const { model } = props;
  const { objects, first_touches, threads, timeline, advice, applied } = model.profile;
  const hasTimes = timeline.seconds.length + timeline.slices.seconds.length > 0;
  const hasTree = model.metrics.length > 0;
  return [
    { name: "summary", label: "Summary", show: () => <Summary {...props} /> },
    {
      name: "advice",
      label: `Advice (${advice.length})`,
      show: advice.length + applied.length > 0 ? () => <Advice {...props} /> : undefined,
    },
    {
      name: "matrix",
      label: "Access matrix",
      show: split(model.matrix).total > 0 ? () => <Matrices {...props} /> : undefined,
    },
    {
      name: "objects",
      label: "Allocation sites",
      show: objects.length > 0 ? () => <Objects {...props} /> : undefined,
    },
    {
      name: "touch",
      label: "First touch",
      show: first_touches.object.length > 0 ? () => <FirstTouches {...props} /> : undefined,
    },
    {
      name: "threads",
      label: "Threads",
      show: threads.length > 0 ? () => <Threads {...props} /> : undefined,
    },
    {
      name: "functions",
      label: "Functions",
      show: hasTree ? () => <Functions {...props} /> : undefined,
    },
    { name: "source", label: "Source", show: hasTree ? () => <Source {...props} /> : undefined },
    {
      name: "tree",
      label: "Call tree",
      show: hasTree ? () => <CallTree {...props} key={process} /> : undefined,
    },
    {
      name: "flame",
      label: "Flame graph",
      show: hasTree ? () => <Flame {...props} key={process} /> : undefined,
    },
    { name: "stacks", label: "Stacks", show: hasTree ? () => <Stacks {...props} /> : undefined },
    {
      name: "time",
      label: "Over time",
      show: hasTimes ? () => <OverTime {...props} /> : undefined,
    },
  ];
}
