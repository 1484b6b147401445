/** Lines over time, drawn by uPlot. */

import { useEffect, useMemo, useRef } from "react";
import uPlot from "uplot";
import { clock, count, tick } from "./say";
import "uplot/dist/uPlot.min.css";

export interface Line {
  name: string;
  values: (number | null)[];
}

const INKS = [1, 2, 3, 4, 5, 6, 7, 8].map((one) => `--line-${one}`);

function ink(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const inkOf = (index: number): string => INKS[index % INKS.length] ?? "--accent";

interface Props {
  at: number[];
  lines: Line[];
  unit: string;
  tall?: number;
}

export function Plot({ at, lines, unit, tall = 170 }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const names = lines.map((line) => line.name).join("\n");
  const data = useMemo(
    () => [at, ...lines.map((line) => line.values)] as uPlot.AlignedData,
    [at, lines],
  );
  const newest = useRef(data);
  newest.current = data;
  useEffect(() => {
    const here = box.current;
    if (!here) return;
    const axis = {
      stroke: ink("--soft"),
      grid: { stroke: ink("--line"), width: 1 },
      ticks: { show: false },
    };
    const made = new uPlot(
      {
        width: here.clientWidth,
        height: tall,
        cursor: { y: false },
        legend: { markers: { width: 0, fill: (_plot, index) => ink(inkOf(index - 1)) } },
        axes: [
          {
            ...axis,
            size: 26,
            space: 72,
            values: (_plot, at) => at.map((one) => tick(one, (at.at(-1) ?? one) - (at[0] ?? one))),
          },
          { ...axis, size: 44 },
        ],
        series: [
          { label: "at", value: (_plot, at) => (at === null ? "" : clock(at)) },
          ...names.split("\n").map(
            (name, index): uPlot.Series => ({
              label: `${name}${unit ? ` (${unit})` : ""}`,
              stroke: ink(inkOf(index)),
              width: 1.5,
              points: { show: false },
              spanGaps: true,
              value: (_plot, value) => (value === null || value === undefined ? "" : count(value)),
            }),
          ),
        ],
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
  }, [names, unit, tall]);
  useEffect(() => plot.current?.setData(data), [data]);
  return <div className="plot" ref={box} />;
}
