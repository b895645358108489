// A sweep as curves: size on a logarithmic axis to base 2, one colour and symbol for each operation; a sweep of a single
// size as bars, which are plain elements. The modules of ECharts are imported one by one so that the page contains only those that it uses.

import { LineChart } from "echarts/charts";
import { GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import { use, type EChartsCoreOption } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

import { exactSize, quantity } from "../data/format";
import { onePoint, type OnePoint } from "../data/onePoint";
import { chartStyle, SYMBOLS, useChart } from "./chart";
import { colour } from "./theme";

use([LineChart, GridComponent, LegendComponent, TooltipComponent, CanvasRenderer]);

export interface Curve {
  name: string; // curves of one name share an entry of the legend
  detail?: string; // distinguishes curves of the same name
  series: number; // which colour and symbol: curves of one operation share them
  dashed?: boolean;
  points: [size: number, value: number][];
}

interface Props {
  title: string;
  label: string; // for screen readers
  unit: string;
  logarithmic: boolean;
  curves: Curve[];
  sizeName?: string; // the title of the axis of sizes
  sizeText?: (size: number) => string; // formats a size
}

const SERIES = SYMBOLS.length;
const SIZE = "message size";

export function Curves(props: Props) {
  const point = onePoint(props.curves);
  return point ? <OnePointBars {...props} point={point} /> : <DrawnCurves {...props} />;
}

const roundedSize = (value: number) => exactSize(Math.round(value));

function OnePointBars({ title, unit, sizeName, sizeText, point }: Props & { point: OnePoint }) {
  const highest = Math.max(...point.bars.map(({ value }) => value));
  const at = `${sizeName ?? SIZE} ${(sizeText ?? roundedSize)(point.size)}`;
  return (
    <figure class="bars">
      <figcaption>
        {title}, at {at}
      </figcaption>
      <div class="bars-plot" role="table" aria-label={`${title}, at ${at}`}>
        {point.bars.map(({ label, series, value }) => (
          <div class="bars-row" role="row" key={label}>
            <span role="rowheader">{label}</span>
            <span class="bars-track" aria-hidden="true">
              <span
                class="bars-bar"
                style={{
                  width: `${(95 * value) / highest}%`,
                  background: `var(--series-${series % SERIES})`,
                }}
              />
            </span>
            <span class="numeric" role="cell">
              {quantity(value, unit)}
            </span>
          </div>
        ))}
      </div>
    </figure>
  );
}

function DrawnCurves({
  title,
  label,
  unit,
  logarithmic,
  curves,
  sizeName = SIZE,
  sizeText = roundedSize,
}: Props) {
  const inputs = [unit, logarithmic, curves, sizeName, sizeText] as const;
  const box = useChart(() => options(...inputs), [...inputs]);
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div class="chart" role="img" aria-label={label} ref={box} />
    </figure>
  );
}

type Text = (size: number) => string;

function options(
  unit: string,
  logarithmic: boolean,
  curves: Curve[],
  sizeName: string,
  sizeText: Text,
): EChartsCoreOption {
  const { base, text, axisLine, line } = chartStyle();
  return {
    ...base,
    grid: { left: 4, right: 18, top: 16 + 22 * legendRows(curves), bottom: 26, containLabel: true },
    xAxis: sizeAxis(curves, sizeName, sizeText, { axisLabel: text, axisLine, nameTextStyle: text }),
    yAxis: {
      type: logarithmic ? "log" : "value",
      axisLabel: {
        ...text,
        formatter: (value: number) => quantity(value, unit),
      },
      splitLine: line,
    },
    tooltip: {
      ...(base.tooltip as object),
      formatter: (points: { seriesIndex: number; value: [number, number] }[]) =>
        [
          sizeText(2 ** points[0]!.value[0]),
          ...points.map((point) => tooltipLine(curves, unit, point)),
        ].join("\n"),
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

/** The approximate number of rows of the legend, above which the plot begins; widths of entries are estimated. */
function legendRows(curves: Curve[]): number {
  const names = [...new Set(curves.map(({ name }) => name))];
  const width = names.reduce((sum, name) => sum + 52 + 7 * name.length, 0);
  return Math.max(1, Math.ceil(width / 480));
}

/** The sizes by their logarithm: the logarithmic axis of ECharts would name one size in a thousand. */
function sizeAxis(curves: Curve[], name: string, sizeText: Text, style: object): object {
  const sizes = curves.flatMap((curve) => curve.points.map(([size]) => Math.log2(size)));
  const min = Math.floor(Math.min(...sizes));
  const max = Math.max(min + 1, Math.ceil(Math.max(...sizes)));
  return {
    ...style,
    type: "value",
    min,
    max,
    interval: Math.max(1, Math.ceil((max - min) / 8)),
    name,
    nameLocation: "middle",
    nameGap: 30,
    splitLine: { show: false },
    axisTick: { show: true },
    axisLabel: {
      ...(style as { axisLabel: object }).axisLabel,
      formatter: (exponent: number) => sizeText(2 ** exponent),
      hideOverlap: true,
    },
  };
}

function tooltipLine(
  curves: Curve[],
  unit: string,
  point: { seriesIndex: number; value: [number, number] },
): string {
  const { name, detail } = curves[point.seriesIndex]!;
  return `${detail ? `${name} ${detail}` : name}: ${quantity(point.value[1], unit)}`;
}
