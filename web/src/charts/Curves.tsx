// A sweep as curves: size on a logarithmic axis to base 2, one colour and symbol an operation. The modules
// of ECharts are named one by one so that the page carries only what it draws with.

import { LineChart } from "echarts/charts";
import { GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import { init, use, type EChartsCoreOption } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { useLayoutEffect, useRef } from "preact/hooks";

import { bytes, quantity } from "../data/format";
import { colour, useTheme } from "./theme";

use([LineChart, GridComponent, LegendComponent, TooltipComponent, CanvasRenderer]);

export interface Curve {
  name: string;
  series: number; // which colour and symbol: curves of one operation share them
  dashed?: boolean;
  points: [size: number, value: number][];
}

interface Props {
  label: string; // for those who cannot see it, and the test
  axis: string;
  unit: string;
  logarithmic: boolean;
  curves: Curve[];
}

const SYMBOLS = ["circle", "rect", "triangle", "diamond"];
export const SERIES = 4;

export function Curves({ label, axis, unit, logarithmic, curves }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  useLayoutEffect(() => {
    const chart = init(box.current!, null, { renderer: "canvas" });
    chart.setOption(options(axis, unit, logarithmic, curves));
    chart.getZr().flush();
    const watcher = new ResizeObserver(() => chart.resize());
    watcher.observe(box.current!);
    return () => {
      watcher.disconnect();
      chart.dispose();
    };
  }, [axis, unit, logarithmic, curves, theme]);
  return <div class="chart" role="img" aria-label={label} ref={box} />;
}

function options(axis: string, unit: string, logarithmic: boolean, curves: Curve[]): EChartsCoreOption {
  const ink = colour("ink-soft");
  const line = { lineStyle: { color: colour("line") } };
  const text = { color: ink, fontFamily: "inherit", fontSize: 12 };
  return {
    animation: false,
    textStyle: { fontFamily: "system-ui, sans-serif" },
    grid: { left: 8, right: 20, top: 64, bottom: 30, containLabel: true },
    legend: { top: 26, left: 0, itemWidth: 28, itemGap: 16, textStyle: text },
    xAxis: {
      type: "log",
      logBase: 2,
      name: "message size",
      nameLocation: "middle",
      nameGap: 30,
      nameTextStyle: text,
      axisLabel: { ...text, formatter: bytes, hideOverlap: true },
      axisLine: line,
      splitLine: { show: false },
    },
    yAxis: {
      type: logarithmic ? "log" : "value",
      name: axis,
      nameTextStyle: { ...text, align: "left", fontWeight: "bold" },
      nameGap: 46,
      axisLabel: { ...text, formatter: (value: number) => quantity(value, unit) },
      splitLine: line,
    },
    tooltip: {
      trigger: "axis",
      renderMode: "richText", // names come from the run: never through innerHTML
      backgroundColor: colour("raised"),
      borderColor: colour("line-strong"),
      textStyle: { ...text, color: colour("ink") },
      formatter: (points: { seriesName: string; value: [number, number] }[]) =>
        [bytes(points[0]!.value[0]), ...points.map((p) => `${p.seriesName}: ${quantity(p.value[1], unit)}`)].join(
          "\n",
        ),
    },
    series: curves.map((curve) => ({
      type: "line",
      name: curve.name,
      data: curve.points,
      color: colour(`series-${curve.series % SERIES}`),
      symbol: SYMBOLS[curve.series % SERIES],
      symbolSize: curve.dashed ? 4 : 6,
      lineStyle: { width: curve.dashed ? 1.4 : 2, type: curve.dashed ? "dashed" : "solid" },
    })),
  };
}
