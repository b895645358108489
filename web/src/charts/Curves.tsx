// A sweep as curves: size on a logarithmic axis to base 2, one colour and symbol an operation. The modules
// of ECharts are named one by one so that the page carries only what it draws with.

import { LineChart } from "echarts/charts";
import { GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import { use, type EChartsCoreOption } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

import { bytes, quantity } from "../data/format";
import { look, SYMBOLS, useChart } from "./chart";
import { colour } from "./theme";

use([LineChart, GridComponent, LegendComponent, TooltipComponent, CanvasRenderer]);

export interface Curve {
  name: string; // curves of one name share an entry of the legend
  detail?: string; // what tells them apart
  series: number; // which colour and symbol: curves of one operation share them
  dashed?: boolean;
  points: [size: number, value: number][];
}

interface Props {
  title: string;
  label: string; // for those who cannot see it
  unit: string;
  logarithmic: boolean;
  curves: Curve[];
}

const SERIES = SYMBOLS.length;

export function Curves({ title, label, unit, logarithmic, curves }: Props) {
  const box = useChart(() => options(unit, logarithmic, curves), [unit, logarithmic, curves]);
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div class="chart" role="img" aria-label={label} ref={box} />
    </figure>
  );
}

function options(unit: string, logarithmic: boolean, curves: Curve[]): EChartsCoreOption {
  const { base, text, axisLine, line } = look();
  return {
    ...base,
    grid: { left: 4, right: 18, top: 38, bottom: 26, containLabel: true },
    xAxis: sizeAxis(curves, { axisLabel: text, axisLine, nameTextStyle: text }),
    yAxis: {
      type: logarithmic ? "log" : "value",
      axisLabel: { ...text, formatter: (value: number) => quantity(value, unit).replace(/\.0+(?= )/, "") },
      splitLine: line,
    },
    tooltip: {
      ...(base.tooltip as object),
      formatter: (points: { seriesIndex: number; value: [number, number] }[]) =>
        [bytes(2 ** points[0]!.value[0]), ...points.map((point) => reading(curves, unit, point))].join("\n"),
    },
    series: curves.map((curve) => ({
      type: "line",
      name: curve.name,
      data: curve.points.map(([size, value]) => [Math.log2(size), value]),
      color: colour(`series-${curve.series % SERIES}`),
      symbol: SYMBOLS[curve.series % SERIES],
      symbolSize: curve.dashed ? 4 : 7,
      lineStyle: { width: curve.dashed ? 1.5 : 2, type: curve.dashed ? "dashed" : "solid" },
    })),
  };
}

/** The sizes by their logarithm: the logarithmic axis of ECharts would name one size in a thousand. */
function sizeAxis(curves: Curve[], look: object): object {
  const sizes = curves.flatMap((curve) => curve.points.map(([size]) => Math.log2(size)));
  const min = Math.floor(Math.min(...sizes));
  const max = Math.max(min + 1, Math.ceil(Math.max(...sizes)));
  return {
    ...look,
    type: "value",
    min,
    max,
    interval: Math.max(1, Math.ceil((max - min) / 8)),
    name: "message size",
    nameLocation: "middle",
    nameGap: 30,
    splitLine: { show: false },
    axisTick: { show: true },
    axisLabel: {
      ...(look as { axisLabel: object }).axisLabel,
      formatter: (exponent: number) => bytes(2 ** exponent),
      hideOverlap: true,
    },
  };
}

function reading(curves: Curve[], unit: string, point: { seriesIndex: number; value: [number, number] }): string {
  const { name, detail } = curves[point.seriesIndex]!;
  return `${detail ? `${name} ${detail}` : name}: ${quantity(point.value[1], unit)}`;
}
