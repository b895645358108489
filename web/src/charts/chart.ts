// Shared by all charts drawn by ECharts: their style, and their creation and disposal inside a component.

import { init, type EChartsCoreOption } from "echarts/core";
import { useLayoutEffect, useRef, type Inputs } from "preact/hooks";

import { colour, useTheme } from "./theme";

export const SYMBOLS = ["circle", "rect", "triangle", "diamond"];

/** Returns a reference for the chart's element. The chart is drawn again when an input or the theme changes. */
export function useChart(options: () => EChartsCoreOption, inputs: Inputs) {
  const box = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  useLayoutEffect(() => {
    const chart = init(box.current!, null, { renderer: "canvas" });
    chart.setOption(options());
    chart.getZr().flush();
    const watcher = new ResizeObserver(() => chart.resize());
    watcher.observe(box.current!);
    return () => {
      watcher.disconnect();
      chart.dispose();
    };
  }, [...inputs, theme]);
  return box;
}

/** The styles of text, lines and boxes in the colours of the theme. */
export function chartStyle() {
  const text = { color: colour("ink-soft"), fontSize: 12.5 };
  return {
    text,
    line: { lineStyle: { color: colour("line") } },
    axisLine: { lineStyle: { color: colour("line-strong") } },
    base: {
      animation: false,
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      legend: {
        top: 0,
        left: 0,
        itemWidth: 28,
        itemGap: 18,
        textStyle: { ...text, color: colour("ink") },
      },
      tooltip: {
        trigger: "axis",
        renderMode: "richText", // names come from the run: never through innerHTML
        backgroundColor: colour("raised"),
        borderColor: colour("line-strong"),
        textStyle: { ...text, color: colour("ink") },
      },
    },
  };
}
