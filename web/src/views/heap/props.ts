// The properties of every view of a heap profile.

import type { HeapModel } from "../../data/heap";
import type { ViewProps } from "../profile/props";

export type HeapViewProps = ViewProps<HeapModel>;
