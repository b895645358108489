// The view of first touches: the object, the touching line and thread, and the memory policy.

import { useMemo } from "preact/hooks";

import { amountColumn } from "../profile/Figure";
import { locationColumn } from "../profile/LocationLink";
import { Table, type Column } from "../Table";
import type { NumaViewProps } from "./props";

interface Row {
  object: string;
  location: number;
  thread: string;
  bytes: number;
  policy: string;
  huge: number;
}

export function FirstTouches({ model, select }: NumaViewProps) {
  const { first_touches: touches, objects, threads, process } = model.profile;
  const rows = useMemo(
    () =>
      touches.object.map((object, k): Row => ({
        object: objects[object]!.name,
        location: touches.location[k]!,
        thread: threads[touches.thread[k]!]!.name,
        bytes: touches.bytes[k]!,
        policy: touches.policy[k]!,
        huge: touches.huge[k]!,
      })),
    [model],
  );
  const columns = useMemo(
    (): Column<Row>[] => [
      amountColumn("bytes", "touched first", (row) => row.bytes, "B"),
      { id: "object", header: "of", value: (row) => row.object },
      locationColumn("by", model, select, (row) => row.location),
      { id: "thread", header: "thread", value: (row) => row.thread },
      { id: "policy", header: "memory policy", value: (row) => row.policy },
      { id: "huge", header: "huge pages", numeric: true, value: (row) => row.huge },
    ],
    [model],
  );
  return (
    <>
      <p class="soft">
        A page is placed when it is touched first: by the default policy on the node of the thread
        that touches it{process.emulated > 0 ? " (here emulated)" : ""}.
      </p>
      <Table caption="First touches by object, line and thread" columns={columns} rows={rows} />
    </>
  );
}
