// Who has asked, and on whose behalf: the stacks with most of a metric, of all or of those through a chosen function
// or line.

import { useState } from "preact/hooks";

import { Choice } from "../Choice";
import { amount, share, ShareBar } from "./Figure";
import type { ViewProps } from "./props";

const SHOWN = 50;
const INNERMOST = 3; // frames in a stack's own line

export function Stacks({ model, metric, selection, select }: ViewProps) {
  const [own, setOwn] = useState<"own" | "through">("through");
  const found = model.stacks(
    metric,
    selection?.place,
    selection?.group ?? "function",
    own === "own",
  );
  const whole = found.reduce((sum, one) => sum + one.value, 0);
  const sums = metric.fold === "sum";
  return (
    <div class="stacks">
      <div class="controls">
        <h3>
          {selection
            ? `Stacks ${own === "own" ? "that end in" : "through"} ${model.functionName(selection.place)}`
            : "Stacks"}
          : {metric.words}
        </h3>
        {selection && (
          <Choice
            label="Of"
            value={own}
            options={[
              ["through", "what it and its callees ask for"],
              ["own", "what it asks for itself"],
            ]}
            onChange={setOwn}
          />
        )}
      </div>
      {found.length === 0 && <p class="soft">None.</p>}
      {found.slice(0, SHOWN).map(({ node, value }) => (
        <details key={node}>
          <summary>
            <span class="numeric">{amount(value, metric.unit)}</span>
            {sums && <ShareBar part={value / whole} />}
            {sums && <small>{share(value / whole)}</small>}
            <span>
              {inWords(
                model.stack(node).map((place) => model.functionName(place)),
                model.functionName(model.asker[node]!),
              )}
            </span>
          </summary>
          <ol class="frames">
            {model.stack(node).map((place, k) => (
              <li key={k} class={place === model.asker[node] ? "asker" : ""}>
                <button
                  type="button"
                  class="link"
                  title={model.page.locations.function[place]}
                  onClick={() => select({ place, group: "line" }, "source")}
                >
                  {model.functionName(place)}
                </button>{" "}
                <small>
                  {model.source(place)}
                  {model.page.locations.inlined[place] ? ", inlined" : ""}
                </small>
              </li>
            ))}
          </ol>
        </details>
      ))}
      {found.length > SHOWN && (
        <p class="soft">and {(found.length - SHOWN).toLocaleString("en")} more with less</p>
      )}
    </div>
  );
}

/** The innermost frames, from who has asked outwards. */
function inWords(names: string[], asker: string): string {
  const from = names.lastIndexOf(asker) + 1;
  return names
    .slice(Math.max(0, from - INNERMOST), from)
    .reverse()
    .join(" ← ");
}
