/** Lines over time or over steps, drawn by uPlot. */

import { useEffect, useMemo, useRef } from "react";
import uPlot from "uplot";
import { clock, count, duration, tick } from "./say";
import "uplot/dist/uPlot.min.css";

/** A line; `low` and `high` bound what lay between two of its points. */
export interface Line {
  name: string;
  values: (number | null)[];
  low?: (number | null)[];
  high?: (number | null)[];
}

const INKS = [1, 2, 3, 4, 5, 6, 7, 8].map((one) => `--line-${one}`);
const LEAST_ZOOM_PIXELS = 6;
const FAINT = 0.16;

function ink(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const inkOf = (index: number): string => INKS[index % INKS.length] ?? "--accent";
const faint = (color: string): string => color.replace(/^rgb\((.*)\)$/, `rgba($1, ${FAINT})`);

const placeOf = (value: number, by: By): string =>
  by === "time" ? clock(value) : by === "seconds" ? duration(value) : count(value);

/** A value of a curve: small ones keep the digits that tell something. */
const figure = (value: number): string =>
  value !== 0 && Math.abs(value) < 0.1 ? value.toPrecision(3) : count(value);

/** A mark of the vertical axis; a logarithmic one leaves some out. */
const figureOf = (value: number | null): string => (value === null ? "" : figure(value));

/** What the horizontal axis counts: seconds since 1970, since a begin, or steps. */
type By = "time" | "seconds" | "step";

interface Props {
  at: number[];
  lines: Line[];
  unit: string;
  tall?: number;
  /** What `at` counts. */
  by?: By;
  /** Plots of one name share their cursor. */
  sync?: string;
  /** The greatest value of the vertical axis, which then begins at 0. */
  most?: number | undefined;
  /** A logarithmic vertical axis. */
  logarithmic?: boolean;
  /** The span that was drawn with the pointer. */
  onZoom?: ((from: number, to: number) => void) | undefined;
}

export function Plot(props: Props) {
  const { at, lines, unit, tall = 170, by = "time", sync, most, logarithmic = false } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const zoom = useRef(props.onZoom);
  zoom.current = props.onZoom;
  const names = lines.map((line) => `${line.name}${line.low ? "\t" : ""}`).join("\n");
  const data = useMemo(() => columns(at, lines, logarithmic), [at, lines, logarithmic]);
  const newest = useRef(data);
  newest.current = data;
  useEffect(() => {
    const here = box.current;
    if (!here) return;
    const drawn = series(names, unit, by);
    const made = new uPlot(
      {
        width: here.clientWidth,
        height: tall,
        cursor: {
          y: false,
          drag: { x: zoom.current !== undefined, y: false, setScale: false },
          ...(sync ? { sync: { key: sync } } : {}),
        },
        hooks: { setSelect: [(one) => takeSelection(one, zoom.current)] },
        legend: {
          markers: { width: 0, fill: (_, index) => drawn.series[index]?.stroke as string },
        },
        scales: {
          x: { time: by === "time" },
          y: { distr: logarithmic ? 3 : 1, ...(most ? { range: [0, most] } : {}) },
        },
        axes: axes(by),
        ...drawn,
      },
      newest.current,
      here,
    );
    plot.current = made;
    const watcher = new ResizeObserver(() =>
      made.setSize({ width: here.clientWidth, height: tall }),
    );
    watcher.observe(here);
    return () => {
      watcher.disconnect();
      made.destroy();
    };
  }, [names, unit, tall, by, sync, most, logarithmic]);
  useEffect(() => plot.current?.setData(data), [data]);
  return <div className="plot" ref={box} />;
}

/** The columns as uPlot takes them. What is not above 0 has no place on a logarithmic axis. */
function columns(at: number[], lines: Line[], logarithmic: boolean): uPlot.AlignedData {
  const shown = (values: (number | null)[]) =>
    logarithmic ? values.map((one) => (one !== null && one > 0 ? one : null)) : values;
  const rows = lines.flatMap((line) =>
    line.low && line.high ? [line.values, line.low, line.high] : [line.values],
  );
  return [at, ...rows.map(shown)] as uPlot.AlignedData;
}

function axes(by: By): uPlot.Axis[] {
  const axis = {
    stroke: ink("--soft"),
    grid: { stroke: ink("--line"), width: 1 },
    ticks: { show: false },
  };
  const times = (_: uPlot, at: number[]) =>
    at.map((one) => tick(one, (at.at(-1) ?? one) - (at[0] ?? one)));
  const plain = (_: uPlot, at: number[]) => at.map((one) => placeOf(one, by));
  return [
    { ...axis, size: 26, space: 72, values: by === "time" ? times : plain },
    { ...axis, size: 56, values: (_: uPlot, at: (number | null)[]) => at.map(figureOf) },
  ];
}

/** The series of the lines, and faint bands between their bounds. */
function series(
  names: string,
  unit: string,
  by: By,
): { series: uPlot.Series[]; bands: uPlot.Band[] } {
  const at = (value: number) => (by === "step" ? `step ${count(value)}` : placeOf(value, by));
  const found: uPlot.Series[] = [
    { label: by === "step" ? "step" : "at", value: (_, one) => (one === null ? "" : at(one)) },
  ];
  const bands: uPlot.Band[] = [];
  for (const [index, name] of names.split("\n").entries()) {
    const stroke = ink(inkOf(index));
    const label = name.replace("\t", "");
    found.push({
      label: `${label}${unit ? ` (${unit})` : ""}`,
      stroke,
      width: 1.5,
      points: { show: false },
      spanGaps: true,
      value: (_, value) => (value === null || value === undefined ? "" : figure(value)),
    });
    if (label === name) continue;
    const bound = { stroke: faint(stroke), width: 1, points: { show: false }, spanGaps: true };
    found.push({ ...bound, label: `${label} low`, class: "hidden" });
    found.push({ ...bound, label: `${label} high`, class: "hidden" });
    bands.push({ series: [found.length - 1, found.length - 2], fill: faint(stroke) });
  }
  return { series: found, bands };
}

function takeSelection(plot: uPlot, zoom: Props["onZoom"]): void {
  const { left, width } = plot.select;
  if (!zoom || width < LEAST_ZOOM_PIXELS) return;
  zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}
