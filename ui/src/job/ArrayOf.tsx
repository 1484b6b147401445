/** An array: its jobs at a glance, what became of each, and one reason a group. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { get, Refused } from "../api/http";
import { FINAL } from "../api/queries";
import type { Job } from "../api/types";
import { Ago, Card, Empty, Head, Lasted, Scroll, State, Wrong } from "../parts/basic";
import { count, plural, shape } from "../parts/say";

const SHOWN = 200;
const MOST_COMPARED = 8;
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

/** What an address names that names no job: an array, or nothing. `unknown` is what was said of it. */
export function ArrayOf({ id, unknown }: { id: string; unknown: unknown }) {
  const { data, error, isPending } = useQuery({
    queryKey: ["jobs", "array", id],
    queryFn: async () =>
      (await get<{ jobs: Job[] }>("/v1/jobs", { array: id, all: 1, limit: 10_000 })).jobs,
    enabled: isUnknown(unknown),
  });
  const [first] = data ?? [];
  if (!first)
    return (
      <>
        <Head title={id} />
        {!(isPending && isUnknown(unknown)) && (
          <Wrong error={isUnknown(error) || !error ? unknown : error} />
        )}
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
            Compare its first {Math.min(MOST_COMPARED, data?.length ?? 0)}
          </Link>
        </div>
      </Head>
      <Whole jobs={data ?? []} first={first} />
    </>
  );
}

function Whole({ jobs, first }: { jobs: Job[]; first: Job }) {
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
      <Card title="All of it" aside={`${count(over)} of ${count(jobs.length)} are over`}>
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
function Reasons({ jobs }: { jobs: Job[] }) {
  const groups = new Map<string, Job[]>();
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

function Tasks({ jobs }: { jobs: Job[] }) {
  if (!jobs.length) return <Empty>No job of it is like that.</Empty>;
  return (
    <Scroll of="Jobs of the array">
      <table>
        <thead>
          <tr>
            <th className="number">Index</th>
            <th>Job</th>
            <th>State</th>
            <th className="number">Ran</th>
            <th>Nodes</th>
            <th className="number">Step</th>
            <th className="number">Exit code</th>
            <th>Why</th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.id}>
              <td className="number">{job.array_index ?? "–"}</td>
              <td className="tight">
                <Link to="/jobs/$job" params={{ job: job.id }} className="linked">
                  {job.id}
                </Link>
              </td>
              <td className="tight">
                <State is={job.state} />
              </td>
              <td className="number">
                {job.started_at === null ? "–" : <Lasted from={job.started_at} to={job.ended_at} />}
              </td>
              <td className="tight soft">{job.nodes.join(", ") || "–"}</td>
              <td className="number">{job.progress ? count(job.progress.step) : "–"}</td>
              <td className="number">{job.exit_code ?? "–"}</td>
              <td className="wide soft">{job.reason || "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
