/** Several jobs beside each other: each scalar in one plot, by step, and what differs in them. */

import { useQueries } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useMemo, useState } from "react";
import { get, part } from "../api/http";
import { seriesOf } from "../api/queries";
import type { JobDetail, SeriesView } from "../api/types";
import { ranSeconds, wholeSpan } from "../job/attempts";
import { drawnFields, MOST_COMPARED, overlaid } from "../job/curves";
import { Card, Empty, Head, Scroll, Segments, State, Wrong } from "../parts/basic";
import { useNow } from "../parts/clock";
import { Plot } from "../parts/Plot";
import { count, duration, shape } from "../parts/say";

const POINTS = 480;
const NAMES: Record<string, string> = { samples_per_second: "throughput (samples/s)" };
const SMOOTHING = [0, 0.5, 0.8, 0.95];

export function Compare() {
  const { jobs: asked = "" } = useSearch({ from: "/compare" });
  const navigate = useNavigate({ from: "/compare" });
  const ids = useMemo(
    () => [...new Set(asked.split(",").filter(Boolean))].slice(0, MOST_COMPARED),
    [asked],
  );
  const jobs = useQueries({
    queries: ids.map((id) => ({
      queryKey: [`job:${id}`, "detail"],
      queryFn: () => get<JobDetail>(`/v1/jobs/${part(id)}`),
    })),
    combine: (all) => ({
      known: all.map((one) => one.data).filter((one) => one !== undefined),
      error: all.find((one) => one.error)?.error,
    }),
  });
  const show = (next: string[]) =>
    void navigate({ search: { jobs: next.join(",") || undefined }, replace: true });
  return (
    <>
      <Head title="Compare jobs" />
      <div className="grid">
        <Add
          full={ids.length >= MOST_COMPARED}
          onAdd={(names) => show([...ids, ...names].slice(0, MOST_COMPARED))}
        />
        <Wrong error={jobs.error} />
        {ids.length ? (
          <Beside
            jobs={jobs.known}
            onDrop={(job) => show(ids.filter((id) => id !== job.id && id !== job.name))}
          />
        ) : (
          <Card title="Nothing to compare yet">
            <Empty>Add jobs by their ids or names, {MOST_COMPARED} at most.</Empty>
          </Card>
        )}
      </div>
    </>
  );
}

function Add({ full, onAdd }: { full: boolean; onAdd: (names: string[]) => void }) {
  const [text, setText] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onAdd(text.split(/[\s,]+/).filter(Boolean));
    setText("");
  };
  return (
    <form className="tools" onSubmit={submit}>
      <input
        aria-label="Ids or names of jobs"
        placeholder="j1, j2 or a name"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <button type="submit" disabled={!text.trim() || full}>
        Add
      </button>
      {full && <span className="soft">{MOST_COMPARED} at most</span>}
    </form>
  );
}

function Beside({ jobs, onDrop }: { jobs: JobDetail[]; onDrop: (job: JobDetail) => void }) {
  const [by, setBy] = useState<"step" | "time">("step");
  const [smoothing, setSmoothing] = useState(0);
  const [logarithmic, setLogarithmic] = useState(false);
  const all = useQueries({
    queries: jobs.map((job) => {
      const span = wholeSpan(job) ?? { since: job.submitted_at, until: null };
      return seriesOf(`job:${job.id}`, span.since, "", POINTS, span.until);
    }),
    combine: (found) => found.map((one) => one.data),
  });
  const fields = [...new Set(all.flatMap((one) => (one ? drawnFields(one) : [])))];
  const drawn = { jobs, all, by, smoothing, logarithmic };
  return (
    <>
      <Card
        title="Curves"
        aside={
          <>
            <Segments
              says="Draw by"
              of={["step", "time"] as const}
              is={by}
              onPick={(one) => setBy(one)}
            />
            <select
              aria-label="Smoothing"
              value={smoothing}
              onChange={(event) => setSmoothing(Number(event.target.value))}
            >
              {SMOOTHING.map((one) => (
                <option key={one} value={one}>
                  {one ? `Smoothing ${one}` : "No smoothing"}
                </option>
              ))}
            </select>
            <button
              type="button"
              aria-pressed={logarithmic}
              onClick={() => setLogarithmic(!logarithmic)}
            >
              Log axis
            </button>
          </>
        }
      >
        {fields.length ? (
          <div className="plots">
            {fields.map((field) => (
              <figure key={field}>
                <figcaption className="soft">{NAMES[field] ?? field}</figcaption>
                <Overlay field={field} {...drawn} />
              </figure>
            ))}
          </div>
        ) : (
          <p className="soft">None of these jobs has logged a value yet.</p>
        )}
      </Card>
      <Differences jobs={jobs} all={all} onDrop={onDrop} />
    </>
  );
}

interface OverlayProps {
  field: string;
  jobs: JobDetail[];
  all: (SeriesView | undefined)[];
  by: "step" | "time";
  smoothing: number;
  logarithmic: boolean;
}

function Overlay({ field, jobs, all, by, smoothing, logarithmic }: OverlayProps) {
  const { at, lines } = useMemo(() => {
    const parts = jobs.flatMap((job, index) => {
      const series = all[index];
      return series ? [{ name: `${job.name} ${job.id}`, series }] : [];
    });
    return overlaid(parts, field, by, smoothing);
  }, [jobs, all, field, by, smoothing]);
  if (at.length < 2) return <p className="soft">Not enough points yet.</p>;
  return (
    <Plot
      at={at}
      lines={lines}
      unit=""
      by={by === "step" ? "step" : "seconds"}
      sync={`compare-${by}`}
      logarithmic={logarithmic}
    />
  );
}

const lastStep = (job: JobDetail): number | undefined =>
  job.attempts.findLast((one) => one.last_step !== null)?.last_step ?? undefined;

interface DifferencesProps {
  jobs: JobDetail[];
  all: (SeriesView | undefined)[];
  onDrop: (job: JobDetail) => void;
}

/** One column a job, one row a property; a row in which they differ stands out. */
function Differences({ jobs, all, onDrop }: DifferencesProps) {
  const now = useNow();
  const last = (index: number, field: string) =>
    all[index]?.fields[field]?.findLast((one) => one !== null);
  const rows: [string, (job: JobDetail, index: number) => string][] = [
    ["Owner", (job) => job.owner],
    ["Queue", (job) => job.queue],
    ["Shape", (job) => shape(job.shape)],
    ["Ran for", (job) => duration(ranSeconds(job.attempts, now))],
    ["Attempts", (job) => count(job.attempts.length)],
    ["Step", (job, at) => count(job.progress?.step ?? lastStep(job) ?? last(at, "step") ?? 0)],
    ["Loss", (_, at) => last(at, "loss")?.toPrecision(4) ?? "–"],
    ["Image", (job) => job.image ?? "–"],
    ["Runs", (job) => job.run ?? "hidden"],
  ];
  return (
    <Card title="Properties" bare>
      <Scroll of="Jobs">
        <table>
          <thead>
            <tr>
              <th>Property</th>
              {jobs.map((job) => (
                <th key={job.id}>
                  <Link to="/jobs/$job" params={{ job: job.id }} className="linked">
                    {job.name} {job.id}
                  </Link>{" "}
                  <button
                    type="button"
                    className="plain"
                    aria-label={`Remove ${job.id}`}
                    onClick={() => onDrop(job)}
                  >
                    Remove
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            <tr>
              <td>State</td>
              {jobs.map((job) => (
                <td key={job.id}>
                  <State is={job.state} />
                </td>
              ))}
            </tr>
            {rows.map(([name, textOf]) => {
              const values = jobs.map(textOf);
              const differ = new Set(values).size > 1;
              return (
                <tr key={name}>
                  <td className="soft">{name}</td>
                  {values.map((value, index) => (
                    <td key={jobs[index]?.id} className="wide">
                      {differ ? <b>{value}</b> : value}
                    </td>
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}
