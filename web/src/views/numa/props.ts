// What every view of a NUMA profile gets.

import type { NumaModel } from "../../data/numa";
import type { ViewProps } from "../profile/props";

export type NumaViewProps = ViewProps<NumaModel>;
