// Lines of values over a program's time in seconds; dragging along the axis zooms in.

import { LineChart } from "echarts/charts";
import {
  DataZoomComponent,
  GridComponent,
  LegendComponent,
  MarkAreaComponent,
  TooltipComponent,
} from "echarts/components";
import { use, type EChartsCoreOption } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

import { quantity } from "../data/format";
import { chartStyle, useChart } from "./chart";
import { colour } from "./theme";

use([
  LineChart,
  GridComponent,
  LegendComponent,
  TooltipComponent,
  DataZoomComponent,
  MarkAreaComponent,
  CanvasRenderer,
]);

export interface TimeLine {
  name: string;
  points: [seconds: number, value: number][];
  filled?: boolean;
  hidden?: boolean; // until the reader chooses it in the legend
}

/** A period of time that is marked behind the lines. */
interface TimeMark {
  name: string;
  from: number; // s
  to: number;
}

interface Props {
  title: string;
  label: string; // for screen readers
  unit: string;
  lines: TimeLine[];
  marks?: TimeMark[];
}

const NO_MARKS: TimeMark[] = [];

const SERIES = 4;

export function TimeLines({ title, label, unit, lines, marks = NO_MARKS }: Props) {
  const box = useChart(() => options(unit, lines, marks), [unit, lines, marks]);
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div class="chart" role="img" aria-label={label} ref={box} />
    </figure>
  );
}

function options(unit: string, lines: TimeLine[], marks: TimeMark[]): EChartsCoreOption {
  const { base, text, axisLine, line } = chartStyle();
  const value = (y: number) => quantity(y, unit);
  return {
    ...base,
    legend: {
      ...base.legend,
      type: "scroll",
      selected: Object.fromEntries(lines.map((line) => [line.name, !line.hidden])),
    },
    grid: { left: 4, right: 18, top: 38, bottom: 30, containLabel: true },
    dataZoom: [{ type: "inside", zoomOnMouseWheel: "ctrl" }],
    xAxis: {
      type: "value",
      min: "dataMin",
      max: "dataMax",
      axisLine,
      splitLine: { show: false },
      axisLabel: {
        ...text,
        formatter: (x: number) => quantity(x, "s"),
        hideOverlap: true,
      },
    },
    yAxis: { type: "value", axisLabel: { ...text, formatter: value }, splitLine: line },
    tooltip: {
      ...base.tooltip,
      formatter: (points: { seriesName: string; value: [number, number] }[]) =>
        [
          quantity(points[0]!.value[0], "s"),
          ...points.map((p) => `${p.seriesName}: ${quantity(p.value[1], unit)}`),
        ].join("\n"),
    },
    series: lines.map((line, k) => ({
      ...(k === 0 && marks.length > 0 ? { markArea: areas(marks) } : {}),
      type: "line",
      name: line.name,
      data: line.points,
      color: colour(`series-${k % SERIES}`),
      showSymbol: false,
      step: "end",
      sampling: "minmax", // of the points of a pixel the lowest too: a dip of an instant is seen
      lineStyle: { width: 1.5, type: k < SERIES ? "solid" : "dashed" },
      ...(line.filled ? { areaStyle: { opacity: 0.18 } } : {}),
    })),
  };
}

function areas(marks: TimeMark[]) {
  return {
    silent: true,
    itemStyle: { color: colour("series-1"), opacity: 0.25 },
    label: { color: colour("ink"), fontSize: 12.5 },
    data: marks.map(({ name, from, to }) => [{ name, xAxis: from }, { xAxis: to }]),
  };
}
