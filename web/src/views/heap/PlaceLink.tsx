// A function by its name, which leads to its source; and as a column of tables, who has asked.

import type { HeapModel } from "../../data/heap";
import type { Column } from "../Table";
import type { ViewProps } from "./props";

interface Props {
  model: HeapModel;
  select: ViewProps["select"];
  place: number;
}

export function PlaceLink({ model, select, place }: Props) {
  return (
    <button
      type="button"
      class="link"
      title={model.page.locations.function[place]}
      onClick={() => select({ place, group: "line" }, "source")}
    >
      {model.functionName(place)} <small>{model.source(place)}</small>
    </button>
  );
}

/** Of rows that stand for a line. */
export function placeColumn<T>(
  header: string,
  model: HeapModel,
  select: ViewProps["select"],
  of: (row: T) => number,
): Column<T> {
  return {
    id: "line",
    header,
    value: (row) => model.functionName(of(row)),
    show: (row) => <PlaceLink model={model} select={select} place={of(row)} />,
  };
}
