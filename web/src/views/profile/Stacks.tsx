// The stacks with most of a metric: all of them, or those through a selected function or line. Each names the location
// that counts as its cause.

import { useState } from "preact/hooks";

import { Choice } from "../Choice";
import { amount, share, ShareBar } from "./Figure";
import type { ViewProps } from "./props";

const SHOWN = 50;
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
  const sums = metric.fold === "sum";
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
      {stacks.slice(0, SHOWN).map(({ node, value }) => (
        <details key={node}>
          <summary>
            <span class="numeric">{amount(value, metric.unit)}</span>
            {sums && <ShareBar part={value / total} />}
            {sums && <small>{share(value / total)}</small>}
            <span>
              {inWords(
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
      {stacks.length > SHOWN && (
        <p class="soft">and {(stacks.length - SHOWN).toLocaleString("en")} more with less</p>
      )}
    </div>
  );
}

/** The innermost frames, from the allocation site outwards. */
function inWords(names: string[], allocationSite: string): string {
  const from = names.lastIndexOf(allocationSite) + 1;
  return names
    .slice(Math.max(0, from - INNERMOST), from)
    .reverse()
    .join(" ← ");
}
