// The properties of every view of a NUMA profile.

import type { NumaModel } from "../../data/numa";
import type { ViewProps } from "../profile/props";

export type NumaViewProps = ViewProps<NumaModel>;
