// A function's name that links to its source, also as a table column of locations.

import type { ProfileModel } from "../../data/profile";
import type { Column } from "../Table";
import type { ViewProps } from "./props";

interface Props {
  model: ProfileModel;
  select: ViewProps["select"];
  location: number;
}

export function LocationLink({ model, select, location }: Props) {
  return (
    <button
      type="button"
      class="link"
      title={model.tree.locations.function[location]}
      onClick={() => select({ location, group: "line" }, "source")}
    >
      {model.functionName(location)} <small>{model.source(location)}</small>
    </button>
  );
}

/** A column of a table whose rows have a location each: the function, linked to its source. */
export function locationColumn<T>(
  header: string,
  model: ProfileModel,
  select: ViewProps["select"],
  locationOf: (row: T) => number,
): Column<T> {
  return {
    id: "line",
    header,
    value: (row) => model.functionName(locationOf(row)),
    show: (row) => <LocationLink model={model} select={select} location={locationOf(row)} />,
  };
}
