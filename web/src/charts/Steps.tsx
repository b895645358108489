// A count over the steps of a schedule, as a histogram. The chosen step is marked.

import { BarChart } from "echarts/charts";
import { DataZoomComponent, GridComponent, TooltipComponent } from "echarts/components";
import { use, type EChartsCoreOption } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

import { chartStyle, useChart } from "./chart";
import { colour } from "./theme";

use([BarChart, GridComponent, TooltipComponent, DataZoomComponent, CanvasRenderer]);

interface Props {
  title: string;
  label: string; // for screen readers
  points: [step: number, value: number][];
  chosen: number;
}

export function Steps({ title, label, points, chosen }: Props) {
  const box = useChart(() => options(points, chosen), [points, chosen]);
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div class="chart" role="img" aria-label={label} ref={box} />
    </figure>
  );
}

function options(points: [number, number][], chosen: number): EChartsCoreOption {
  const { base, text, axisLine, line } = chartStyle();
  return {
    ...base,
    grid: { left: 4, right: 18, top: 12, bottom: 26, containLabel: true },
    dataZoom: [{ type: "inside", zoomOnMouseWheel: "ctrl" }],
    xAxis: {
      type: "category",
      data: points.map(([step]) => String(step)),
      axisLine,
      axisTick: { show: false },
      axisLabel: { ...text, hideOverlap: true },
      name: "step",
      nameLocation: "middle",
      nameGap: 26,
      nameTextStyle: text,
    },
    yAxis: { type: "value", minInterval: 1, axisLabel: text, splitLine: line },
    series: [
      {
        type: "bar",
        barCategoryGap: "10%",
        large: points.length > 2000,
        data: points.map(([step, value]) => ({
          value,
          itemStyle: { color: colour(step === chosen ? "series-1" : "series-0") },
        })),
      },
    ],
  };
}
