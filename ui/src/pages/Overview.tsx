/** The cluster in one look: what its GPUs do, who waits, and what has just happened. */

import { Link } from "@tanstack/react-router";
import { Fragment, useMemo, useState } from "react";
import { useHeard } from "../api/live";
import {
  useFailures,
  useJobs,
  useMoneyRate,
  useQueues,
  useReport,
  useStatus,
} from "../api/queries";
import type { FailedJob, JobView, QueueRow, Status } from "../api/types";
import { Ago, At, Card, Empty, Head, Lasted, Meter, Tile, Wrong } from "../parts/basic";
import { Curves } from "../parts/Curves";
import { useNow } from "../parts/clock";
import { Feed } from "../parts/Feed";
import { HeatMap, NodeLink } from "../parts/HeatMap";
import { ASKS, JOB, OWNER, QUEUE, SINCE, WHY } from "../parts/jobColumns";
import { count, duration, ownTime, percent, plural, words } from "../parts/say";
import { type Column, Table } from "../parts/Table";

const SHOWN = 8;
const NAMED = 5; // jobs in a sentence
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
      {data && <Warnings said={data.warnings} nodes={data.nodes} />}
      <div className="grid">
        {data && <Numbers status={data} line={line} />}
        <div className="grid two">
          <div className="grid">
            <Card title="GPUs by node" aside={data && plural(data.nodes.length, "node")}>
              {data?.nodes.length ? (
                <HeatMap nodes={data.nodes} />
              ) : (
                <Empty>The cluster has no node yet.</Empty>
              )}
            </Card>
            <Card
              title="Waiting"
              aside={
                <Link to="/jobs" search={{ state: "QUEUED" }}>
                  All waiting jobs
                </Link>
              }
              bare
            >
              <Line jobs={line} />
            </Card>
            <FailedJobs />
            <LastHours />
          </div>
          <div className="grid">
            <QueueLengths />
            <Waste />
            <Card title="Recent events" bare>
              <Feed events={events.slice(0, 60)} short />
            </Card>
          </div>
        </div>
      </div>
    </>
  );
}

type Warning = Status["warnings"][number];

export function Warnings({ said, nodes }: { said: readonly Warning[]; nodes: Status["nodes"] }) {
  if (!said.length) return null;
  return (
    <div className="notice" role="status">
      <ul>
        {said.map((one) => (
          <li key={one.text}>
            <Said warning={one} nodes={nodes} />
          </li>
        ))}
      </ul>
    </div>
  );
}

/** A warning of the head. Of a node: with its link, since when it is away, and its jobs. */
function Said({ warning, nodes }: { warning: Warning; nodes: Status["nodes"] }) {
  const node = nodes.find((one) => one.id === warning.node);
  if (!node) return ownTime(warning.text);
  const named = `node ${node.id}`;
  const text = warning.text.startsWith(named)
    ? warning.text.slice(named.length)
    : `: ${warning.text}`;
  return (
    <>
      node <NodeLink id={node.id} />
      {ownTime(text)}
      {node.liveness !== "alive" && (
        <>
          {" "}
          (since <At at={node.since} />
          <Several before="; its jobs:" jobs={node.jobs} />
          <Several before="; jobs lost with it:" jobs={node.lost_jobs} />)
        </>
      )}
    </>
  );
}

function Several({ before, jobs }: { before: string; jobs: readonly string[] }) {
  if (!jobs.length) return null;
  return (
    <>
      {before}{" "}
      {jobs.slice(0, NAMED).map((job) => (
        <Link key={job} className="linked" to="/jobs/$job" params={{ job }}>
          {job}{" "}
        </Link>
      ))}
      {jobs.length > NAMED && `and ${jobs.length - NAMED} more`}
    </>
  );
}

function Numbers({ status, line }: { status: Status; line: readonly JobView[] }) {
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
        {gpus.away ? <small>, {count(gpus.away)} more unavailable</small> : null}
      </Tile>
      <Tile
        name="Busy"
        note={busy.idle ? `${plural(busy.idle, "GPU")} held but idle` : "on average, of held GPUs"}
      >
        {busy.share === undefined ? "–" : percent(busy.share)}
      </Tile>
      <Tile name="Running" note={others(jobs)}>
        {count(jobs.RUNNING ?? 0)}
      </Tile>
      <Tile
        name="Waiting"
        note={
          median === undefined ? "no job waits" : `half have waited ${duration(median)} or more`
        }
      >
        {count(queued)}
      </Tile>
      <FailedTile />
      <RateTile />
      <Tile name="Nodes alive" note={nodesNote(nodes.length - alive, closed)}>
        {count(alive)} <small>of {count(nodes.length)}</small>
      </Tile>
    </dl>
  );
}

/** Which nodes take no work, in words. */
function nodesNote(away: number, closed: number): string {
  const parts = [
    away ? `${count(away)} silent or dead` : "",
    closed ? `${count(closed)} cordoned or draining` : "",
  ].filter(Boolean);
  return parts.join(", ") || "all accept jobs";
}

function FailedTile() {
  const { data } = useFailures();
  const jobs = data?.classes.reduce((sum, one) => sum + one.jobs, 0) ?? 0;
  const [first, ...rest] = data?.classes ?? [];
  const more = rest.length ? ` and ${plural(rest.length, "other class", "es")}` : "";
  return (
    <Tile
      name="Failed in 24 h"
      note={first ? `${first.jobs} × ${first.failure || "unknown"}${more}` : "none"}
    >
      <span className={jobs ? "bad" : undefined}>
        {data ? `${count(jobs)}${data.more ? "+" : ""}` : "–"}
      </span>
    </Tile>
  );
}

function RateTile() {
  const { data } = useMoneyRate();
  const unpriced = data?.unpriced_gpus ?? 0;
  const both = (data?.cost_per_hour ?? 0) > 0 && (data?.list_cost_per_hour ?? 0) > 0;
  const listed = `${count(data?.list_cost_per_hour ?? 0)} USD at list prices`;
  const byList = data !== undefined && !data.cost_per_hour && data.list_cost_per_hour > 0;
  const notes = [
    both ? `and ${listed}` : byList ? "at list prices of clouds" : "for the GPUs held now",
    unpriced ? `${plural(unpriced, "GPU")} without a known price` : "",
  ];
  return (
    <Tile name="Cost per hour" note={notes.filter(Boolean).join("; ")}>
      {data ? count(byList ? data.list_cost_per_hour : data.cost_per_hour) : "–"}{" "}
      <small>{byList ? "USD" : data?.currency}</small>
    </Tile>
  );
}

const FAILED: Column<FailedJob>[] = [
  JOB,
  OWNER,
  { name: "Class", look: "tight bad", of: (job) => job.failure || "unknown" },
  { name: "Ended", look: "number", of: (job) => <Ago at={job.ended_at} /> },
  { ...WHY, name: "What happened" },
];

/** What broke lately, and whose it is. */
function FailedJobs() {
  const { data } = useFailures();
  return (
    <Card
      title="Failed in the last 24 hours"
      aside={
        <Link to="/jobs" search={{ state: "FAILED" }}>
          All failed jobs
        </Link>
      }
      bare
    >
      {data && !data.jobs.length && <Empty>No job has failed in the last 24 hours.</Empty>}
      {data && data.jobs.length > 0 && (
        <Table
          of="Failed in the last 24 hours"
          rows={data.jobs}
          keyOf={(job) => job.id}
          columns={FAILED}
        />
      )}
    </Card>
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
  return (
    rest.map(([state, number]) => `${number} ${state.toLowerCase()}`).join(", ") ||
    "none in other states"
  );
}

const LINE: Column<JobView>[] = [JOB, QUEUE, ASKS, { ...SINCE, name: "Waiting for" }, WHY];

function Line({ jobs }: { jobs: readonly JobView[] }) {
  const oldest = useMemo(
    () => [...jobs].sort((one, two) => one.submitted_at - two.submitted_at).slice(0, SHOWN),
    [jobs],
  );
  if (!oldest.length) return <Empty>No job is waiting.</Empty>;
  return <Table of="Waiting" rows={oldest} keyOf={(job) => job.id} columns={LINE} />;
}

const HOURS = 3;
const BUSY = { utilisation: "utilisation of held GPUs" };
const HELD = { gpus: "all GPUs", held_gpus: "held GPUs" };
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
    <Card title="GPU hours lost in 7 days" aside={<Link to="/money">Reports</Link>}>
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
          <dt>Held in total</dt>
          <dd>{count(held)} GPU hours</dd>
        </dl>
      ) : (
        data && <p className="soft">No GPU was held in this time.</p>
      )}
      <Wrong error={error} />
    </Card>
  );
}

const QUEUES: Column<QueueRow>[] = [
  {
    name: "Queue",
    look: "cut",
    of: (queue) => (
      <Link to="/queues/$queue" params={{ queue: queue.name }}>
        {queue.name}
      </Link>
    ),
  },
  { name: "Waiting", look: "number", of: (queue) => count(queue.waiting) },
  { name: "Running", look: "number", of: (queue) => count(queue.running) },
  { name: "GPUs", look: "number", of: (queue) => count(queue.used) },
  { name: "Own GPUs", look: "number soft", of: (queue) => count(queue.own) },
];

function QueueLengths() {
  const { data } = useQueues();
  return (
    <Card title="Queues" aside={<Link to="/queues">All queues</Link>} bare>
      {data?.queues.length ? (
        <Table
          of="Queues"
          rows={data.queues.slice(0, SHOWN)}
          keyOf={(queue) => queue.name}
          columns={QUEUES}
        />
      ) : (
        <Empty>No queues are defined: all users share the cluster.</Empty>
      )}
    </Card>
  );
}
