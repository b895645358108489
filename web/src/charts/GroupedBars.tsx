// Bars in groups, one group for each category: stacked for phases that add up, side by side for rates.

import { BarChart } from "echarts/charts";
import { GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import { use, type EChartsCoreOption } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

import { quantity } from "../data/format";
import type { Bars } from "../data/storage";
import { chartStyle, useChart } from "./chart";
import { colour } from "./theme";

use([BarChart, GridComponent, LegendComponent, TooltipComponent, CanvasRenderer]);

interface Props {
  title: string;
  label: string; // for screen readers
  unit: string;
  bars: Bars;
  stacked: boolean;
}

const SERIES = 4;
const ROW = 34; // CSS pixels of a bar and its gap
const MARGIN = 90; // CSS pixels of legend and axis

export function GroupedBars({ title, label, unit, bars, stacked }: Props) {
  const box = useChart(() => options(unit, bars, stacked), [unit, bars, stacked]);
  const rows = bars.categories.length * (stacked ? 1 : bars.series.length * 0.7);
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div
        class="chart"
        role="img"
        aria-label={label}
        ref={box}
        style={{ height: `${Math.max(180, MARGIN + ROW * rows)}px` }}
      />
    </figure>
  );
}

function options(unit: string, bars: Bars, stacked: boolean): EChartsCoreOption {
  const { base, text, axisLine, line } = chartStyle();
  const format = (value: number) => quantity(value, unit);
  return {
    ...base,
    grid: { left: 4, right: 24, top: 32, bottom: 8, containLabel: true },
    xAxis: {
      type: "value",
      axisLabel: { ...text, formatter: format, hideOverlap: true },
      splitLine: line,
    },
    yAxis: {
      type: "category",
      data: bars.categories,
      inverse: true,
      axisLine,
      axisLabel: { ...text, width: 300, overflow: "break", lineHeight: 15 },
    },
    tooltip: {
      ...base.tooltip,
      axisPointer: { type: "shadow" },
      formatter: (points: { seriesName: string; name: string; value: number | null }[]) =>
        [
          points[0]!.name,
          ...points.map(({ seriesName, value }) => `${seriesName}: ${quantity(value, unit)}`),
        ].join("\n"),
    },
    series: bars.series.map(({ name, values }, k) => ({
      type: "bar",
      name,
      data: values,
      color: colour(`series-${k % SERIES}`),
      ...(stacked ? { stack: "all" } : {}),
      barMaxWidth: 26,
    })),
  };
}
