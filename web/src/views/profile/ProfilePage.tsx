// The page of a profile: title and main figures, the tabs, and the chosen view below them. All views have the same
// metric and the same selected function or line.

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";

import type { Metric, ProfileModel } from "../../data/profile";
import { Choice } from "../Choice";
import { Controls, WITH_METRIC } from "./Controls";
import type { Selection, ViewProps } from "./props";
import { useView } from "./useView";
import "./profile.css";

export interface Headline {
  label: string;
  value: string;
  note?: ComponentChildren;
}

/** A view; without ``show`` it has no data and is left out. */
export interface Tab {
  name: string;
  label: string;
  show: (() => ComponentChildren) | undefined;
}

/** What all pages of the report's data have. */
interface Page {
  title: string;
  profile: { process: { program: string } };
}

interface Props<P extends Page, Model extends ProfileModel> {
  id: string;
  /** Before the program in the title. */
  subject: string;
  /** A page for each process. */
  pages: P[];
  makeModel: (page: P) => Model;
  /** The metric that is shown; ``key``: the one chosen last. */
  metricOf: (model: Model, key: string | undefined, view: string) => Metric;
  headline: (props: ViewProps<Model>) => Headline[];
  notices: (page: P) => string[];
  tabs: (props: ViewProps<Model>, process: number) => Tab[];
  /** Views of the run around the profile: findings, records. */
  others: Tab[];
}

export function ProfilePage<P extends Page, Model extends ProfileModel>({
  id,
  subject,
  pages,
  makeModel,
  metricOf,
  headline,
  notices,
  tabs,
  others,
}: Props<P, Model>) {
  const [process, setProcess] = useState(0);
  const [view, setView] = useView("summary");
  const [metricKey, setMetric] = useState<string | undefined>();
  const [selection, setSelection] = useState<Selection | undefined>();
  const page = pages[process]!;
  const model = useMemo(() => makeModel(page), [page]);
  const props: ViewProps<Model> = {
    model,
    metric: metricOf(model, metricKey, view),
    selection,
    select: (next, nextView) => {
      setSelection(next);
      if (nextView) setView(nextView);
    },
  };
  const shown = [...tabs(props, process), ...others].filter((tab) => tab.show);
  const chosen = shown.find((tab) => tab.name === view) ?? shown[0]!;
  return (
    <div id={id} class="profile">
      <header class="profile-head">
        <div class="profile-title">
          <h1>
            {subject} of {page.profile.process.program}
          </h1>
          {pages.length > 1 && (
            <Choice
              label="Process"
              value={String(process)}
              options={pages.map((item, k) => [String(k), item.title])}
              onChange={(k) => {
                setProcess(Number(k));
                setSelection(undefined);
              }}
            />
          )}
        </div>
        <dl class="headline">
          {headline(props).map(({ label, value, note }) => (
            <div key={label}>
              <dt>{label}</dt>
              <dd>
                {value} {note && <small>{note}</small>}
              </dd>
            </div>
          ))}
        </dl>
      </header>
      <div class="tabs" role="tablist" aria-label="Views of the profile">
        {shown.map(({ name, label }) => (
          <button
            key={name}
            type="button"
            role="tab"
            aria-selected={name === chosen.name}
            onClick={() => setView(name)}
          >
            {label}
          </button>
        ))}
      </div>
      {notices(page).map((notice) => (
        <p key={notice} class="notice" role="note">
          {notice}
        </p>
      ))}
      <div
        role="tabpanel"
        aria-label={chosen.label}
        class="profile-view"
        data-view={chosen.name}
        key={chosen.name}
      >
        {WITH_METRIC.has(view) && <Controls {...props} view={view} onMetric={setMetric} />}
        {chosen.show!()}
      </div>
    </div>
  );
}
