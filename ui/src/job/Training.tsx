/** How training goes or went: the newest beat, and a curve of each scalar that the job logs. */

import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { useSeries } from "../api/queries";
import type { JobDetail, SeriesView } from "../api/types";
import { Ago, Card, Meter, Segments } from "../parts/basic";
import { useNow } from "../parts/clock";
import { Plot } from "../parts/Plot";
import { count, duration, percent } from "../parts/say";
import { secondsLeft } from "./attempts";
import { divergedAfter, drawnFields, extremes, pick, risingSteps } from "./curves";
import { type Range, RangePicker } from "./Range";

type Beat = NonNullable<JobDetail["progress"]>;
type By = "time" | "step";
const NAMES: Record<string, [string, string]> = {
  loss: ["loss", ""],
  samples_per_second: ["throughput", "samples/s"],
};
const POINTS = 480;

export function Training({ job, range }: { job: JobDetail; range: Range }) {
  const { data } = useSeries(`job:${job.id}`, range.since, "", POINTS, range.until);
  const fields = data ? drawnFields(data) : [];
  const [by, setBy] = useState<By>("time");
  const beat = job.progress;
  if (!beat && !data?.times.length) return null;
  return (
    <Card
      title="Training"
      aside={
        <>
          {beat && <Ago at={beat.at} />}
          {fields.length > 0 && (
            <Segments says="Draw by" of={["time", "step"] as const} is={by} onPick={setBy} />
          )}
          <RangePicker range={range} />
          <Link to="/compare" search={{ jobs: job.id }} className="button">
            Compare
          </Link>
        </>
      }
    >
      <div className="grid">
        {data && <Diverged job={job} series={data} />}
        {beat ? <Now beat={beat} /> : <Last job={job} series={data} />}
        <div className="plots">
          {data &&
            fields.map((name) => (
              <Scalar key={name} name={name} series={data} by={by} range={range} />
            ))}
        </div>
        {!fields.length && <p className="soft">No curves yet: a point is stored every 10 s.</p>}
      </div>
    </Card>
  );
}

/** The end of the loss: training goes on, and learns nothing. */
function Diverged({ job, series }: { job: JobDetail; series: SeriesView }) {
  const newest = job.attempts.at(-1);
  const step = newest?.nan_step ?? divergedAfter(series, newest?.running_at ?? 0);
  if (step === undefined) return null;
  return (
    <p className="notice bad" role="status" style={{ margin: 0 }}>
      The loss is not a number since step {count(step)} (NaN or infinite).{" "}
      {job.state === "RUNNING" && "All later steps are lost: stop the job, and start again from "}
      {job.state === "RUNNING" && "a save before that step with a lower learning rate."}
    </p>
  );
}

function Now({ beat }: { beat: Beat }) {
  const now = useNow();
  const left = beat.left_seconds ?? secondsLeft(beat, now);
  const parts = beat.data_seconds + beat.compute_seconds + beat.save_seconds;
  return (
    <dl className="pairs">
      <dt>Step</dt>
      <dd className="metered">
        {beat.until ? <Meter of={beat.until} parts={[beat.step]} /> : null}
        <span>
          {count(beat.step)}
          {beat.until ? ` of ${count(beat.until)}` : ""}
        </span>
      </dd>
      {left !== undefined && beat.step < (beat.until ?? 0) && (
        <>
          <dt>Ends</dt>
          <dd>in about {duration(left)}, estimated from its step time</dd>
        </>
      )}
      {beat.loss !== null && (
        <>
          <dt>Loss</dt>
          <dd>{beat.loss.toPrecision(4)}</dd>
        </>
      )}
      {beat.samples_per_second !== null && (
        <>
          <dt>Throughput</dt>
          <dd>{count(beat.samples_per_second)} samples/s</dd>
        </>
      )}
      {parts > 0 && (
        <>
          <dt>Time goes to</dt>
          <dd>
            computing {percent(beat.compute_seconds / parts)}, data{" "}
            {percent(beat.data_seconds / parts)}, saves {percent(beat.save_seconds / parts)}
          </dd>
        </>
      )}
    </dl>
  );
}

/** The last values that are known of a job that does not run now. */
function Last({ job, series }: { job: JobDetail; series: SeriesView | undefined }) {
  const last = (name: string) => series?.fields[name]?.findLast((one) => one !== null) ?? null;
  const step = job.attempts.at(-1)?.last_step ?? last("step");
  const loss = last("loss");
  return (
    <dl className="pairs">
      {step !== null && (
        <>
          <dt>Last step</dt>
          <dd>{count(step)}</dd>
        </>
      )}
      {loss !== null && (
        <>
          <dt>Last loss</dt>
          <dd>{loss.toPrecision(4)}</dd>
        </>
      )}
    </dl>
  );
}

interface ScalarProps {
  name: string;
  series: SeriesView;
  by: By;
  range: Range;
}

function Scalar({ name, series, by, range }: ScalarProps) {
  const [called, unit] = NAMES[name] ?? [name, ""];
  const drawn = useMemo(() => {
    const steps = series.fields.step ?? [];
    const kept = by === "step" ? risingSteps(steps) : series.times.map((_, at) => at);
    const at = by === "step" ? steps.map((one) => one ?? 0) : series.times;
    const bounds = extremes(series, name);
    const line = {
      name: called,
      values: pick(series.fields[name] ?? [], kept),
      ...(bounds.low && bounds.high
        ? { low: pick(bounds.low, kept), high: pick(bounds.high, kept) }
        : {}),
    };
    return { at: pick(at, kept), lines: [line] };
  }, [series, name, called, by]);
  if (drawn.at.length < 2) return null;
  return (
    <Plot
      at={drawn.at}
      lines={drawn.lines}
      unit={unit}
      by={by}
      sync={`job-${by}`}
      onZoom={by === "time" ? range.zoom : undefined}
    />
  );
}
