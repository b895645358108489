// The view of advice: placements to change, the largest gain first, with their predicted remote shares; and placements
// that were applied to this run, with the predicted and the measured shares.

import { useMemo } from "preact/hooks";

import { sharePercent } from "../../data/numa";
import type { NumaAdvice, NumaApplied } from "../../data/numaProfile";
import { formatCountOrQuantity } from "../profile/Figure";
import { LocationLink } from "../profile/LocationLink";
import { figureColumn, Table, type Column } from "../Table";
import type { NumaViewProps } from "./props";

export function Advice(props: NumaViewProps) {
  const { advice, applied, process } = props.model.profile;
  return (
    <>
      {applied.length > 0 && <Applied rows={applied} />}
      {advice.length > 0 && (
        <AdviceTable {...props} caption="Advice, the largest gain first" rows={advice} />
      )}
      {advice.some((row) => row.assumed) && (
        <p class="soft">
          First touches alone do not tell who uses an object later: where it says "if used alike",
          the threads of all nodes are taken to use it equally.
        </p>
      )}
      {advice.length > 0 && (
        <p class="soft">
          assay numa --apply RUN -- PROGRAM places the objects so at the next run, without a change
          of the source{process.emulated > 0 ? "; give the same --emulate" : ""}.
        </p>
      )}
    </>
  );
}

interface TableProps extends NumaViewProps {
  caption: string;
  rows: NumaAdvice[];
}

export function AdviceTable({ model, select, caption, rows }: TableProps) {
  const columns = useMemo((): Column<NumaAdvice>[] => {
    const object = (row: NumaAdvice) => model.profile.objects[row.object]!;
    return [
      {
        id: "object",
        header: "object, allocated by",
        value: (row) => object(row).name,
        show: (row) =>
          object(row).site >= 0 ? (
            <LocationLink model={model} select={select} location={object(row).site} />
          ) : (
            object(row).name
          ),
      },
      { id: "fix", header: "do", value: (row) => row.fix },
      {
        id: "before",
        header: "remote now",
        numeric: true,
        value: (row) => row.before,
        show: (row) => `${sharePercent(row.before)}${row.assumed ? " if used alike" : ""}`,
      },
      figureColumn("predicted", "predicted", (row) => row.predicted, sharePercent),
      figureColumn(
        "gain",
        "gain",
        (row) => row.gain,
        (value) => `${formatCountOrQuantity(value, model.unit)} local`,
      ),
      {
        id: "toucher",
        header: "touched first by",
        value: (row) => (row.toucher >= 0 ? model.functionName(row.toucher) : ""),
        show: (row) =>
          row.toucher >= 0 ? (
            <LocationLink model={model} select={select} location={row.toucher} />
          ) : (
            "unknown"
          ),
      },
    ];
  }, [model]);
  return <Table caption={caption} columns={columns} rows={rows} />;
}

const APPLIED: Column<NumaApplied>[] = [
  { id: "name", header: "applied to", value: (row) => row.name },
  { id: "action", header: "placement", value: (row) => row.action },
  figureColumn("before", "remote before", (row) => row.before, sharePercent),
  figureColumn("predicted", "predicted", (row) => row.predicted, sharePercent),
  figureColumn(
    "measured",
    "measured",
    (row) => row.measured,
    (value) => (value === null ? "not measured" : sharePercent(value)),
  ),
];

function Applied({ rows }: { rows: NumaApplied[] }) {
  return (
    <>
      <h3>Applied to this run: predicted and measured</h3>
      <Table caption="Applied to this run: predicted and measured" columns={APPLIED} rows={rows} />
    </>
  );
}
