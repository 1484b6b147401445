/** An array: its jobs at a glance, what became of each, and one reason a group. */

import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { Refused } from "../api/http";
import { FINAL, useArray } from "../api/queries";
import type { JobView } from "../api/types";
import { Ago, Card, Empty, Head, Lasted, State, Wrong } from "../parts/basic";
import { STATE } from "../parts/jobColumns";
import { count, plural, shape } from "../parts/say";
import { type Column, Table } from "../parts/Table";
import { MOST_COMPARED } from "./curves";

const SHOWN = 200;
const ORDER = [
  "FAILED",
  "RECOVERING",
  "HELD",
  "RUNNING",
  "STARTING",
  "STOPPING",
  "QUEUED",
  "SUSPENDED",
  "CANCELLED",
  "DONE",
];
const KINDS: Record<string, string> = {
  RUNNING: "runs",
  STARTING: "starts",
  RECOVERING: "starts",
  STOPPING: "starts",
  DONE: "ends",
  FAILED: "fails",
};

const isUnknown = (error: unknown): boolean => error instanceof Refused && error.status === 404;

/** What an address names that names no job: an array, or nothing. `unknown`: the refusal of the job;
 * none where it is known to be an array. */
export function ArrayOf({ id, unknown }: { id: string; unknown: unknown }) {
  const may = !unknown || isUnknown(unknown);
  const { data, error, isPending } = useArray(id, may);
  const [first] = data ?? [];
  if (!first)
    return (
      <>
        <Head title={id} />
        {!(isPending && may) && <Wrong error={isUnknown(error) || !error ? unknown : error} />}
      </>
    );
  return (
    <>
      <Head title={first.name.replace(/_\d+$/, "")}>
        <span className="soft">
          {first.array}, an array of {plural(data?.length ?? 0, "job")}
        </span>
        <div className="actions">
          <Link
            to="/compare"
            search={{
              jobs: (data ?? [])
                .slice(0, MOST_COMPARED)
                .map((job) => job.id)
                .join(","),
            }}
            className="button"
          >
            Compare the first {Math.min(MOST_COMPARED, data?.length ?? 0)}
          </Link>
        </div>
      </Head>
      <Whole jobs={data ?? []} first={first} />
    </>
  );
}

function Whole({ jobs, first }: { jobs: JobView[]; first: JobView }) {
  const [state, setState] = useState("");
  const states = useMemo(() => {
    const found = new Map<string, number>();
    for (const job of jobs) found.set(job.state, (found.get(job.state) ?? 0) + 1);
    return ORDER.filter((one) => found.has(one)).map((one) => [one, found.get(one) ?? 0] as const);
  }, [jobs]);
  const shown = state ? jobs.filter((job) => job.state === state) : jobs;
  const over = jobs.filter((job) => FINAL.has(job.state)).length;
  return (
    <div className="grid">
      <Card title="All jobs" aside={`${count(over)} of ${count(jobs.length)} have ended`}>
        <div className="grid">
          <div className="line" aria-hidden="true">
            {states.toReversed().map(([one, number]) => (
              <i key={one} className={KINDS[one] ?? "waits"} style={{ flexGrow: number }} />
            ))}
          </div>
          <fieldset className="segments">
            <legend className="hidden">Jobs of which state</legend>
            <button type="button" aria-pressed={state === ""} onClick={() => setState("")}>
              all {count(jobs.length)}
            </button>
            {states.map(([one, number]) => (
              <button
                type="button"
                key={one}
                aria-pressed={state === one}
                onClick={() => setState(one)}
              >
                {one.toLowerCase()} {count(number)}
              </button>
            ))}
          </fieldset>
          <dl className="pairs">
            <dt>Owner</dt>
            <dd>{first.owner}</dd>
            <dt>Queue</dt>
            <dd>
              {first.queue}, priority {first.priority}
            </dd>
            <dt>Each</dt>
            <dd>{shape(first.shape)}</dd>
            <dt>Submitted</dt>
            <dd>
              <Ago at={first.submitted_at} />
            </dd>
          </dl>
          <Reasons jobs={jobs} />
        </div>
      </Card>
      <Card
        title="Its jobs"
        aside={shown.length > SHOWN ? `the first ${SHOWN} of ${count(shown.length)}` : undefined}
        bare
      >
        <Tasks jobs={shown.slice(0, SHOWN)} />
      </Card>
    </div>
  );
}

/** Why jobs are where they are: one line for all that have the same reason. */
function Reasons({ jobs }: { jobs: JobView[] }) {
  const groups = new Map<string, JobView[]>();
  for (const job of jobs) {
    if (!job.reason || job.state === "DONE" || job.state === "RUNNING") continue;
    const key = `${job.state}\n${job.reason}`;
    groups.set(key, [...(groups.get(key) ?? []), job]);
  }
  const most = [...groups.values()].sort((one, other) => other.length - one.length).slice(0, 6);
  if (!most.length) return null;
  return (
    <ul className="grid" style={{ gap: 6 }} aria-label="Reasons">
      {most.map((group) => (
        <li key={group[0]?.id}>
          <State is={group[0]?.state ?? ""} /> {count(group.length)}:{" "}
          <span className="soft">{group[0]?.reason}</span>
        </li>
      ))}
    </ul>
  );
}

const TASKS: Column<JobView>[] = [
  { name: "Index", look: "number", of: (job) => job.array_index },
  {
    name: "Job",
    look: "tight",
    of: (job) => (
      <Link to="/jobs/$job" params={{ job: job.id }} className="linked">
        {job.id}
      </Link>
    ),
  },
  STATE,
  {
    name: "Ran",
    look: "number",
    of: (job) =>
      job.started_at === null ? null : <Lasted from={job.started_at} to={job.ended_at} />,
  },
  { name: "Nodes", look: "tight soft", of: (job) => job.nodes.join(", ") },
  { name: "Step", look: "number", of: (job) => job.progress && count(job.progress.step) },
  { name: "Exit code", look: "number", of: (job) => job.exit_code },
  { name: "Why", look: "wide soft", of: (job) => job.reason },
];

function Tasks({ jobs }: { jobs: JobView[] }) {
  if (!jobs.length) return <Empty>No job of the array is in this state.</Empty>;
  return <Table of="Jobs of the array" rows={jobs} keyOf={(job) => job.id} columns={TASKS} />;
}
