// The controls above the views of the call tree: the choice of the metric, and the selected function or line.

import { isSum } from "../../data/profile";
import { Choice } from "../Choice";
import type { ViewProps } from "./props";

/** The views that show the chosen metric. */
export const WITH_METRIC = new Set(["functions", "source", "tree", "flame", "stacks"]);

interface Props extends ViewProps {
  view: string;
  onMetric: (key: string) => void;
}

export function Controls({ model, metric, selection, select, view, onMetric }: Props) {
  return (
    <div class="controls">
      <Choice
        label="Metric"
        value={metric.key}
        options={model.metrics
          .filter((item) => view !== "flame" || isSum(item))
          .map((item) => [item.key, item.label])}
        onChange={onMetric}
      />
      {selection && (
        <p class="soft">
          {model.functionName(selection.location)} ({model.source(selection.location)}){" "}
          <button type="button" onClick={() => select(undefined)} title="Clear the selection">
            ✕
          </button>
        </p>
      )}
    </div>
  );
}
