// The stacks with the largest figures: of the whole profile, or of those through a selected function or line. A stack's
// site, the location to which its figures are attributed, is marked.

import { useState } from "preact/hooks";

import { Choice } from "../Choice";
import { formatCountOrQuantity, share, ShareBar } from "./Figure";
import type { ViewProps } from "./props";

const MAX_STACKS = 50;
const MAX_SUMMARY_FRAMES = 3; // innermost frames in the summary of a stack

export function Stacks({ model, metric, selection, select }: ViewProps) {
  const [kind, setKind] = useState<"exclusive" | "through">("through");
  const stacks = model.stacks(
    metric,
    selection?.location,
    selection?.group ?? "function",
    kind === "exclusive",
  );
  const total = stacks.reduce((sum, stack) => sum + stack.value, 0);
  const isAdditive = metric.fold === "sum";
  return (
    <div class="stacks">
      <div class="controls">
        <h3>
          {selection
            ? `Stacks ${kind === "exclusive" ? "that end in" : "through"} ${model.functionName(selection.location)}`
            : "Stacks"}
          : {metric.label}
        </h3>
        {selection && (
          <Choice
            label="Attributed to"
            value={kind}
            options={[
              ["through", "it and its callees"],
              ["exclusive", "it only"],
            ]}
            onChange={setKind}
          />
        )}
      </div>
      {stacks.length === 0 && <p class="soft">None.</p>}
      {stacks.slice(0, MAX_STACKS).map(({ node, value }) => (
        <details key={node}>
          <summary>
            <span class="numeric">{formatCountOrQuantity(value, metric.unit)}</span>
            {isAdditive && <ShareBar part={value / total} />}
            {isAdditive && <small>{share(value / total)}</small>}
            <span>
              {innermostNames(
                model.stack(node).map((location) => model.functionName(location)),
                model.functionName(model.site(node)),
              )}
            </span>
          </summary>
          <ol class="frames">
            {model.stack(node).map((location, k) => (
              <li key={k} class={location === model.site(node) ? "allocation-site" : ""}>
                <button
                  type="button"
                  class="link"
                  title={model.tree.locations.function[location]}
                  onClick={() => select({ location, group: "line" }, "source")}
                >
                  {model.functionName(location)}
                </button>{" "}
                <small>
                  {model.source(location)}
                  {model.tree.locations.inlined[location] ? ", inlined" : ""}
                </small>
              </li>
            ))}
          </ol>
        </details>
      ))}
      {stacks.length > MAX_STACKS && (
        <p class="soft">
          and {(stacks.length - MAX_STACKS).toLocaleString("en")} more, with smaller figures
        </p>
      )}
    </div>
  );
}

/** The names of the innermost frames, from the site outwards, joined by arrows. */
function innermostNames(names: string[], site: string): string {
  const from = names.lastIndexOf(site) + 1;
  return names
    .slice(Math.max(0, from - MAX_SUMMARY_FRAMES), from)
    .reverse()
    .join(" ← ");
}
