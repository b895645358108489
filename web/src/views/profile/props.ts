// What every view of a profile gets: the profile, the metric, and the function or line that all views share.

import type { Group, Metric, ProfileModel } from "../../data/profile";

/** A place of the program, as its line or its whole function. */
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
