/** What a job's machines did: use, memory and power of its GPUs, CPU and memory of its nodes. */

import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { seriesOf } from "../api/queries";
import type { JobDetail, SeatView, SeriesView } from "../api/types";
import { Card } from "../parts/basic";
import { type Line, Plot } from "../parts/Plot";
import { plural } from "../parts/say";
import { type Span, within } from "./attempts";
import { onGrid } from "./curves";
import { type Range, RangePicker } from "./Range";

const CELLS = 240;
const CELL_SECONDS = 10;
const MOST_SERIES = 32; // nodes times attempts, the newest first

interface Part {
  seat: SeatView;
  span: Span;
}

interface Measure {
  /** The field of a GPU, or of the node where `ofNode`. */
  field: string;
  name: string;
  times: number;
  ofNode?: boolean;
}

const PLOTS: [string, Measure[]][] = [
  [
    "%",
    [
      { field: "utilisation", name: "GPUs busy", times: 100 },
      { field: "memory", name: "GPU memory", times: 100 },
    ],
  ],
  ["W per GPU", [{ field: "power_watts", name: "power", times: 1 }]],
  [
    "% of the nodes",
    [
      { field: "cpu", name: "CPU", times: 100, ofNode: true },
      { field: "memory", name: "memory", times: 100, ofNode: true },
    ],
  ],
];
const GPU_FIELDS = ["utilisation", "memory", "power_watts"];

const isPart = (part: { seat: SeatView; span: Span | undefined }): part is Part =>
  part.span !== undefined;

/** The nodes that the job was on within a span, attempt by attempt, the newest first. */
export function partsOf(job: Pick<JobDetail, "attempts">, span: Span): Part[] {
  return job.attempts
    .toReversed()
    .flatMap((one) => one.seats.map((seat) => ({ seat, span: within(one, span) })))
    .filter(isPart)
    .slice(0, MOST_SERIES);
}

export function Machines({ job, range }: { job: JobDetail; range: Range }) {
  const parts = partsOf(job, range);
  const found = useQueries({
    queries: parts.map(({ seat, span }) => {
      const gpus = seat.gpus.flatMap((gpu) => GPU_FIELDS.map((field) => `gpu${gpu}.${field}`));
      const fields = ["cpu", "memory", ...gpus].join(",");
      return {
        ...seriesOf(`node:${seat.node}`, span.since, fields, CELLS, span.until),
        placeholderData: (last: SeriesView | undefined) => last,
      };
    }),
    combine: (all) => all.map((one) => one.data),
  });
  const seats = job.attempts.at(-1)?.seats.length ?? 0;
  const { since, end } = range;
  const cells = Math.max(1, Math.min(CELLS, Math.floor((end - since) / CELL_SECONDS)));
  const at = useMemo(
    () =>
      Array.from({ length: cells }, (_, cell) => since + ((cell + 0.5) * (end - since)) / cells),
    [since, end, cells],
  );
  const plots = PLOTS.map(([unit, measures]) => ({
    unit,
    lines: measures
      .map((one) => lineOf(one, parts, found, since, end, cells))
      .filter((line) => line.values.some((value) => value !== null)),
  })).filter(({ lines }) => lines.length);
  if (!plots.length || cells < 2) return null;
  return (
    <Card title="Load of its nodes" aside={<RangePicker range={range} />}>
      <div className="grid">
        <div className="plots">
          {plots.map(({ unit, lines }) => (
            <Plot
              key={unit}
              at={at}
              lines={lines}
              unit={unit}
              tall={140}
              most={unit.startsWith("%") ? 100 : undefined}
              sync="job-time"
              onZoom={range.zoom}
            />
          ))}
        </div>
        <p className="soft">
          GPU values are means over the GPUs of the job. CPU and memory are of the whole node
          {seats > 1 ? `s, means of ${plural(Math.min(seats, MOST_SERIES), "node")}` : ""}: other
          jobs may share {seats > 1 ? "them" : "it"}.
        </p>
      </div>
    </Card>
  );
}

function lineOf(
  measure: Measure,
  parts: readonly Part[],
  found: readonly (SeriesView | undefined)[],
  since: number,
  end: number,
  cells: number,
): Line {
  const points = parts.flatMap(({ seat }, index) => {
    const series = found[index];
    if (!series) return [];
    const names = measure.ofNode
      ? [measure.field]
      : seat.gpus.map((gpu) => `gpu${gpu}.${measure.field}`);
    return names.map((name) => ({ times: series.times, values: series.fields[name] ?? [] }));
  });
  const values = onGrid(points, since, end, cells);
  return {
    name: measure.name,
    values: values.map((one) => (one === null ? null : one * measure.times)),
  };
}
