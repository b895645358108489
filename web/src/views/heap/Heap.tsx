// The heap profile: selects the process and the view. All views share the metric and the selected function or line.

import { useMemo, useState } from "preact/hooks";

import { HeapModel, isSum, METRICS, metricOf } from "../../data/heap";
import type { HeapPage } from "../../data/heapPage";
import { Choice } from "../Choice";
import { CallTree } from "./CallTree";
import { FirstTouch } from "./FirstTouch";
import { Flame } from "./Flame";
import { Fragments } from "./Fragments";
import { Functions } from "./Functions";
import { OverTime } from "./OverTime";
import { VIEWS, type Selection, type ViewName, type ViewProps } from "./props";
import { Ranks } from "./Ranks";
import { Reallocations } from "./Reallocations";
import { Sizes } from "./Sizes";
import { Source } from "./Source";
import { Stacks } from "./Stacks";
import { Summary } from "./Summary";
import { Threads } from "./Threads";
import { Variables } from "./Variables";
import "./heap.css";

const VIEWS_WITH_METRIC = new Set<ViewName>(["functions", "source", "tree", "flame", "stacks"]);

export function Heap({ pages }: { pages: HeapPage[] }) {
  const [process, setProcess] = useState(0);
  const [view, setView] = useState<ViewName>("summary");
  const [metricKey, setMetric] = useState("bytes");
  const [selection, setSelection] = useState<Selection | undefined>();
  const page = pages[process]!;
  const model = useMemo(() => new HeapModel(page), [page]);
  const metric = metricOf(metricKey);
  const select = (next: Selection | undefined, nextView?: ViewName) => {
    setSelection(next);
    if (nextView) setView(nextView);
  };
  const props: ViewProps = { model, metric, selection, select };
  return (
    <section id="heap">
      <h2>Memory of {page.program}</h2>
      {pages.length > 1 && (
        <div class="controls">
          <Choice
            label="Process"
            value={String(process)}
            options={pages.map((item, k) => [String(k), item.title])}
            onChange={(k) => {
              setProcess(Number(k));
              setSelection(undefined);
            }}
          />
        </div>
      )}
      <div class="tabs" role="tablist" aria-label="Views of the profile">
        {Object.entries(VIEWS).map(([name, label]) => (
          <button
            key={name}
            type="button"
            role="tab"
            aria-selected={view === name}
            onClick={() => setView(name as ViewName)}
          >
            {label}
          </button>
        ))}
      </div>
      <div role="tabpanel" aria-label={VIEWS[view]} class="heap-view" data-view={view}>
        {VIEWS_WITH_METRIC.has(view) && (
          <div class="controls">
            <Choice
              label="Metric"
              value={metricKey}
              options={METRICS.filter((item) => view !== "flame" || isSum(item)).map((item) => [
                item.key,
                item.label,
              ])}
              onChange={setMetric}
            />
            {selection && (
              <p class="soft">
                {model.functionName(selection.location)} ({model.source(selection.location)}){" "}
                <button
                  type="button"
                  onClick={() => setSelection(undefined)}
                  title="Clear the selection"
                >
                  ✕
                </button>
              </p>
            )}
          </div>
        )}
        {view === "summary" && <Summary {...props} />}
        {view === "summary" && page.ranks.length > 0 && <Ranks ranks={page.ranks} />}
        {view === "functions" && <Functions {...props} />}
        {view === "source" && <Source {...props} />}
        {view === "tree" && <CallTree {...props} key={process} />}
        {view === "flame" && (
          <Flame {...props} metric={isSum(metric) ? metric : metricOf("bytes")} key={process} />
        )}
        {view === "stacks" && <Stacks {...props} />}
        {view === "threads" && <Threads {...props} />}
        {view === "time" && <OverTime {...props} />}
        {view === "sizes" && <Sizes {...props} />}
        {view === "leaks" && (
          <Stacks {...props} metric={metricOf("leaked")} selection={undefined} />
        )}
        {view === "reallocations" && <Reallocations {...props} />}
        {view === "touch" && <FirstTouch {...props} />}
        {view === "fragments" && <Fragments {...props} />}
        {view === "variables" && <Variables {...props} />}
      </div>
    </section>
  );
}
