// The view of the stacks with the largest figures, of all or of those through a selected function or line. The location
// that counts as a stack's cause is marked.

import { useState } from "preact/hooks";

import { Choice } from "../Choice";
import { formatCountOrQuantity, share, ShareBar } from "./Figure";
import type { ViewProps } from "./props";

const MAX_STACKS = 50;
const INNERMOST = 3; // frames in a stack's own line

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
            label="Of"
            value={kind}
            options={[
              ["through", "it and what it calls"],
              ["exclusive", "it alone"],
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
        <p class="soft">and {(stacks.length - MAX_STACKS).toLocaleString("en")} more with less</p>
      )}
    </div>
  );
}

/** The innermost frames, from the allocation site outwards. */
function innermostNames(names: string[], allocationSite: string): string {
  const from = names.lastIndexOf(allocationSite) + 1;
  return names
    .slice(Math.max(0, from - INNERMOST), from)
    .reverse()
    .join(" ← ");
}
