// What every view of a heap profile gets.

import type { HeapModel } from "../../data/heap";
import type { ViewProps } from "../profile/props";

export type HeapViewProps = ViewProps<HeapModel>;
