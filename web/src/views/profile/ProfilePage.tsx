// The layout of a profile's page: title and main figures, the tabs, and the chosen view below them.

import type { ComponentChildren } from "preact";

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

interface Props {
  id: string;
  title: string;
  headline: Headline[];
  notices: string[];
  /** Beside the title: the choice of the process. */
  choice: ComponentChildren;
  tabs: Tab[];
  view: string;
  onView: (name: string) => void;
  /** Above the view: the metric, the selection. */
  controls: ComponentChildren;
}

export function ProfilePage(props: Props) {
  const { id, title, headline, notices, choice, tabs, onView, controls } = props;
  const shown = tabs.filter((tab) => tab.show);
  const chosen = shown.find((tab) => tab.name === props.view) ?? shown[0]!;
  return (
    <div id={id} class="profile">
      <header class="profile-head">
        <div class="profile-title">
          <h1>{title}</h1>
          {choice}
        </div>
        <dl class="headline">
          {headline.map(({ label, value, note }) => (
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
            onClick={() => onView(name)}
          >
            {label}
          </button>
        ))}
      </div>
      {notices.map((notice) => (
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
        {controls}
        {chosen.show!()}
      </div>
    </div>
  );
}
