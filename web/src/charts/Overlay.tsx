// Measured and simulated curves in one chart: measured as symbols on a line, simulated as a dashed line on top. The
// tooltip shows the error of a point.

import { LineChart } from "echarts/charts";
import { GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import { use, type EChartsCoreOption } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

import { percent, quantity } from "../data/format";
import type { Overlaid } from "../data/model";
import { chartStyle, SYMBOLS, useChart } from "./chart";
import { colour } from "./theme";

use([LineChart, GridComponent, LegendComponent, TooltipComponent, CanvasRenderer]);

interface Props {
  title: string;
  curves: Overlaid[]; // with the same unit and axis
}

export function Overlay({ title, curves }: Props) {
  const box = useChart(() => options(curves), [curves]);
  const label = `${title}, measured and simulated: ${curves.map(({ name }) => name).join(", ")}; the table below has the figures.`;
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div class="chart" role="img" aria-label={label} ref={box} />
    </figure>
  );
}

function options(curves: Overlaid[]): EChartsCoreOption {
  const { base, text, axisLine, line } = chartStyle();
  const { axis, unit } = curves[0]!;
  return {
    ...base,
    grid: { left: 4, right: 18, top: 16 + 22 * curves.length, bottom: 26, containLabel: true },
    legend: { ...(base.legend as object), orient: "vertical", itemGap: 6 },
    xAxis: {
      type: "value",
      min: 0,
      minInterval: 1,
      name: axis,
      nameLocation: "middle",
      nameGap: 28,
      axisLabel: text,
      axisLine,
      nameTextStyle: text,
      splitLine: { show: false },
    },
    yAxis: {
      type: "value",
      axisLabel: { ...text, formatter: (value: number) => quantity(value, unit) },
      splitLine: line,
    },
    tooltip: {
      ...(base.tooltip as object),
      formatter: (hit: { value: [number, number] }[]) => tooltipText(curves, hit[0]!.value[0]),
    },
    series: curves.flatMap((curve, index) => curveSeries(curve, index)),
  };
}

function curveSeries(curve: Overlaid, index: number): object[] {
  const shared = {
    type: "line",
    name: curve.name,
    color: colour(`series-${index % SYMBOLS.length}`),
  };
  const simulated = curve.points.filter((point) => typeof point.simulated === "number");
  return [
    {
      ...shared,
      data: curve.points.map((point) => [point.x, point.measured]),
      symbol: SYMBOLS[index % SYMBOLS.length],
      symbolSize: 8,
      lineStyle: { width: 1.5, opacity: 0.6 },
    },
    {
      ...shared,
      data: simulated.map((point) => [point.x, point.simulated]),
      symbol: "none",
      lineStyle: { width: 2, type: "dashed", color: colour("ink") },
    },
  ];
}

function tooltipText(curves: Overlaid[], x: number): string {
  return curves
    .flatMap((curve) =>
      curve.points.filter((point) => point.x === x).map((point) => ({ curve, point })),
    )
    .map(({ curve, point }) => {
      const simulated =
        point.simulated === null || point.simulated === undefined
          ? "not simulated"
          : quantity(point.simulated, curve.unit);
      const error = typeof point.error === "number" ? ` (${percent(point.error)})` : "";
      return `${curve.name}, ${point.label || `${x} ${curve.axis}`}: ${quantity(point.measured, curve.unit)} measured, ${simulated}${error}`;
    })
    .join("\n");
}
