// What every view of a heap profile gets: the profile, the metric, and the function or line that all views share.

import type { Group, HeapModel, Metric } from "../../data/heap";

/** A place of the program, as its line or its whole function. */
export interface Selection {
  location: number;
  group: Group;
}

export interface ViewProps {
  model: HeapModel;
  metric: Metric;
  selection: Selection | undefined;
  /** Selects a function or line, and shows it in another view where one is named. */
  select: (selection: Selection | undefined, view?: ViewName) => void;
}

export const VIEWS = {
  summary: "Summary",
  functions: "Functions",
  source: "Source",
  tree: "Call tree",
  flame: "Flame graph",
  stacks: "Stacks",
  threads: "Threads",
  time: "Over time",
  sizes: "Sizes and lifetimes",
  leaks: "Leaks",
  reallocations: "Reallocations",
  touch: "First touch",
  fragments: "Fragmentation",
  variables: "Variables",
} as const;

export type ViewName = keyof typeof VIEWS;
