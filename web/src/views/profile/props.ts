// The properties of every view of a profile: the profile, the metric, and the selected function or line.

import type { Group, Metric, ProfileModel } from "../../data/profile";

/** A selected line, or the function of a location. */
export interface Selection {
  location: number;
  group: Group;
}

export interface ViewProps<Model extends ProfileModel = ProfileModel> {
  model: Model;
  metric: Metric;
  selection: Selection | undefined;
  /** Selects a function or line, and shows it in another view where one is named. */
  select: (selection: Selection | undefined, view?: string) => void;
}
