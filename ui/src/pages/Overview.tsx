/** The cluster in one look: what its GPUs do, who waits, and what has just happened. */

import { Link } from "@tanstack/react-router";
import { Fragment, useMemo, useState } from "react";
import { useHeard } from "../api/live";
import { useJobs, useQueues, useReport, useStatus } from "../api/queries";
import type { Job, Status } from "../api/types";
import { Card, Empty, Head, Lasted, Meter, Scroll, Tile, Wrong } from "../parts/basic";
import { Curves } from "../parts/Curves";
import { useNow } from "../parts/clock";
import { Feed } from "../parts/Feed";
import { HeatMap } from "../parts/HeatMap";
import { count, duration, percent, plural, shape, words } from "../parts/say";

const SHOWN = 8;
const WAITING = { text: "", state: ["QUEUED"], owner: "", queue: "", all: false };

export function Overview() {
  const { data, error } = useStatus();
  const { events } = useHeard();
  const waiting = useJobs(WAITING);
  const line = useMemo(
    () => waiting.data?.pages.flatMap((page) => page.jobs) ?? [],
    [waiting.data],
  );
  return (
    <>
      <Head title="Overview">
        {data && (
          <span className="soft cut">
            {data.cluster.engine} · {data.head.version} · up for{" "}
            <Lasted from={data.head.started_at} />
          </span>
        )}
      </Head>
      <Wrong error={error} />
      {data && <Warnings said={data.warnings} />}
      <div className="grid">
        {data && <Numbers status={data} line={line} />}
        <div className="grid two">
          <div className="grid">
            <Card title="GPUs by node" aside={data && plural(data.nodes.length, "node")}>
              {data?.nodes.length ? <HeatMap nodes={data.nodes} /> : <Empty>No node yet.</Empty>}
            </Card>
            <Card
              title="Waiting"
              aside={
                <Link to="/jobs" search={{ state: "QUEUED" }}>
                  All that wait
                </Link>
              }
              bare
            >
              <Line jobs={line} />
            </Card>
            <LastHours />
          </div>
          <div className="grid">
            <QueueLengths />
            <Waste />
            <Card title="Just now" bare>
              <Feed events={events.slice(0, 60)} short />
            </Card>
          </div>
        </div>
      </div>
    </>
  );
}

export function Warnings({ said }: { said: readonly string[] }) {
  if (!said.length) return null;
  return (
    <div className="notice" role="status">
      <ul>
        {said.map((one) => (
          <li key={one}>{one}</li>
        ))}
      </ul>
    </div>
  );
}

function Numbers({ status, line }: { status: Status; line: readonly Job[] }) {
  const { gpus, nodes, jobs } = status;
  const alive = nodes.filter((node) => node.liveness === "alive").length;
  const closed = nodes.filter((node) => node.cordoned || node.draining).length;
  const now = useNow();
  const waits = line.map((job) => now - job.submitted_at).sort((one, two) => one - two);
  const median = waits[Math.floor(waits.length / 2)];
  const queued = jobs.QUEUED ?? 0;
  const busy = busyOf(nodes);
  return (
    <dl className="tiles">
      <Tile name="GPUs in use" note={<Meter of={gpus.total} parts={[gpus.used, gpus.taken]} />}>
        {count(gpus.used)} <small>of {count(gpus.total)}</small>
      </Tile>
      <Tile
        name="Free now"
        note={gpus.total ? `${percent(gpus.free / gpus.total)} of the cluster` : "no GPU yet"}
      >
        {count(gpus.free)}
        {gpus.away ? <small>, {count(gpus.away)} more not to be had</small> : null}
      </Tile>
      <Tile
        name="Busy"
        note={busy.idle ? `${plural(busy.idle, "GPU")} held but idle` : "of those that are held"}
      >
        {busy.share === undefined ? "–" : percent(busy.share)}
      </Tile>
      <Tile name="Running" note={others(jobs)}>
        {count(jobs.RUNNING ?? 0)}
      </Tile>
      <Tile
        name="Waiting"
        note={
          median === undefined ? "nobody waits" : `half have waited ${duration(median)} or more`
        }
      >
        {count(queued)}
      </Tile>
      <Tile
        name="Nodes alive"
        note={closed ? `${count(closed)} cordoned or draining` : "all take work"}
      >
        {count(alive)} <small>of {count(nodes.length)}</small>
      </Tile>
    </dl>
  );
}

/** How busy held GPUs are on average, as sensors said last, and how many of them do nothing. */
function busyOf(nodes: Status["nodes"]): { share: number | undefined; idle: number } {
  const known = nodes.flatMap((node) =>
    node.gpus.held.flatMap((index) => node.gpus.utilisation[index] ?? []),
  );
  const sum = known.reduce((total, one) => total + one, 0);
  return {
    share: known.length ? Math.round((1000 * sum) / known.length) / 1000 : undefined,
    idle: known.filter((one) => one < 0.05).length,
  };
}

/** Unfinished jobs that neither run nor wait. */
function others(jobs: Status["jobs"]): string {
  const rest = Object.entries(jobs).filter(([state]) => state !== "RUNNING" && state !== "QUEUED");
  return rest.map(([state, number]) => `${number} ${state.toLowerCase()}`).join(", ") || "no other";
}

function Line({ jobs }: { jobs: readonly Job[] }) {
  const oldest = useMemo(
    () => [...jobs].sort((one, two) => one.submitted_at - two.submitted_at).slice(0, SHOWN),
    [jobs],
  );
  if (!oldest.length) return <Empty>Nobody waits.</Empty>;
  return (
    <Scroll of="Waiting">
      <table>
        <thead>
          <tr>
            <th>Job</th>
            <th>Queue</th>
            <th>Wants</th>
            <th className="number">Waits</th>
            <th>Why</th>
          </tr>
        </thead>
        <tbody>
          {oldest.map((job) => (
            <tr key={job.id}>
              <td className="tight">
                <Link to="/jobs/$job" params={{ job: job.id }}>
                  {job.name} <span className="soft">{job.id}</span>
                </Link>
              </td>
              <td className="tight soft">{job.queue}</td>
              <td className="tight">{shape(job.shape)}</td>
              <td className="number">
                <Lasted from={job.submitted_at} />
              </td>
              <td className="wide soft">{job.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

const HOURS = 3;
const BUSY = { utilisation: "busy, of those held" };
const HELD = { gpus: "GPUs there", held_gpus: "held" };
const LENGTHS = { queued: "waiting", running: "running" };

function LastHours() {
  const [since] = useState(() => Date.now() / 1000 - HOURS * 3600);
  return (
    <Card title={`The last ${HOURS} hours`}>
      <div className="grid">
        <Curves of="cluster" since={since} fields={HELD} unit="GPUs" tall={130} />
        <Curves of="cluster" since={since} fields={BUSY} unit="%" times={100} tall={130} />
        <Curves of="cluster" since={since} fields={LENGTHS} unit="jobs" tall={130} />
      </div>
    </Card>
  );
}

function Waste() {
  const { data, error } = useReport("waste", "queue", 7);
  const held = data?.total[0] ?? 0;
  const rows = (data?.columns ?? []).map((column, index) => ({
    name: column.name,
    hours: data?.total[index] ?? 0,
  }));
  return (
    <Card title="Held in vain, 7 days" aside={<Link to="/money">Where it went</Link>}>
      {held ? (
        <dl className="pairs">
          {rows.slice(1).map((row) => (
            <Fragment key={row.name}>
              <dt>{words(row.name)}</dt>
              <dd className="metered">
                <Meter of={held} parts={[0, row.hours]} />
                <span>
                  {count(row.hours)} GPU hours{" "}
                  <span className="soft">{percent(row.hours / held)}</span>
                </span>
              </dd>
            </Fragment>
          ))}
          <dt>Of all held</dt>
          <dd>{count(held)} GPU hours</dd>
        </dl>
      ) : (
        data && <p className="soft">No GPU was held.</p>
      )}
      <Wrong error={error} />
    </Card>
  );
}

function QueueLengths() {
  const { data } = useQueues();
  return (
    <Card title="Queues" aside={<Link to="/queues">All of them</Link>} bare>
      {data?.queues.length ? (
        <Scroll of="Queues">
          <table>
            <thead>
              <tr>
                <th>Queue</th>
                <th className="number">Waiting</th>
                <th className="number">Running</th>
                <th className="number">GPUs</th>
                <th className="number">of its own</th>
              </tr>
            </thead>
            <tbody>
              {data.queues.slice(0, SHOWN).map((queue) => (
                <tr key={queue.name}>
                  <td className="cut">{queue.name}</td>
                  <td className="number">{count(queue.waiting)}</td>
                  <td className="number">{count(queue.running)}</td>
                  <td className="number">{count(queue.used)}</td>
                  <td className="number soft">{count(queue.own)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      ) : (
        <Empty>No queue is set: all share the cluster.</Empty>
      )}
    </Card>
  );
}
