/** One queue: what it has, who uses it, its jobs, and how long they wait. */

import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useMemo } from "react";
import { get, part } from "../api/http";
import { useJobs } from "../api/queries";
import type { JobView, QueueDetail } from "../api/types";
import { Card, Empty, Head, Meter, Tile, Wrong } from "../parts/basic";
import { ASKS, JOB, OWNER, SINCE, STATE, WHY } from "../parts/jobColumns";
import { count, duration, percent, plural } from "../parts/say";
import { type Column, Table } from "../parts/Table";
import { waitsOf } from "../parts/waits";
import { Budgets } from "./Queues";

const LATELY = 500; // jobs, of which the waits are told
const SHOWN = 50;

export function Queue() {
  const { queue: name } = useParams({ from: "/queues/$queue" });
  const { data: queue, error } = useQuery({
    queryKey: ["queues", name],
    queryFn: () => get<QueueDetail>(`/v1/queues/${part(name)}`),
  });
  const filter = useMemo(
    () => ({ text: "", state: [] as string[], owner: "", queue: name, all: true }),
    [name],
  );
  const found = useJobs(filter, LATELY);
  const jobs = found.data?.pages.flatMap((page) => page.jobs) ?? [];
  return (
    <>
      <Head title={name} tab={`${name} · Queues`}>
        <span className="soft">queue{queue?.parent ? ` below ${queue.parent}` : ""}</span>
        <div className="actions">
          <Link to="/jobs" search={{ queue: name, whose: "all" }} className="button">
            Jobs of this queue
          </Link>
        </div>
      </Head>
      <Wrong error={error} />
      {queue && (
        <div className="grid">
          <Numbers queue={queue} jobs={jobs} />
          <div className="grid two">
            <JobsHere jobs={jobs} />
            <Users queue={queue} />
          </div>
          {queue.budget && <Budgets queues={[queue]} />}
        </div>
      )}
    </>
  );
}

function Numbers({ queue, jobs }: { queue: QueueDetail; jobs: readonly JobView[] }) {
  const waits = waitsOf(jobs);
  return (
    <dl className="tiles">
      <Tile
        name="GPUs used"
        note={queue.borrowed ? `${count(queue.borrowed)} of them borrowed` : "none borrowed"}
      >
        {count(queue.used)} <small>of {count(queue.own)} own</small>
      </Tile>
      <Tile name="Running" note={`weighted share, now and recent: ${percent(queue.share)}`}>
        {count(queue.running)}
      </Tile>
      <Tile
        name="Waiting"
        note={queue.owes ? `owes ${count(queue.owes)} GPUs` : `share due: ${percent(queue.due)}`}
      >
        {count(queue.waiting)}
      </Tile>
      <Tile
        name="Median wait"
        note={
          waits ? `of the last ${plural(waits.jobs, "job")} that started` : "no job has started"
        }
      >
        {waits ? duration(waits.half) : "–"}
      </Tile>
      <Tile
        name="90th percentile of waits"
        note={waits ? `longest wait: ${duration(waits.longest)}` : undefined}
      >
        {waits ? duration(waits.most) : "–"}
      </Tile>
    </dl>
  );
}

const HERE: Column<JobView>[] = [
  JOB,
  STATE,
  OWNER,
  ASKS,
  SINCE,
  { ...WHY, name: "Nodes or reason" },
];

function JobsHere({ jobs }: { jobs: readonly JobView[] }) {
  const unfinished = jobs.filter((job) => job.ended_at === null);
  return (
    <Card
      title="Running and waiting"
      aside={unfinished.length > SHOWN ? `the newest ${SHOWN}` : undefined}
      bare
    >
      {unfinished.length ? (
        <Table
          of="Running and waiting"
          rows={unfinished.slice(0, SHOWN)}
          keyOf={(job) => job.id}
          columns={HERE}
        />
      ) : (
        <Empty>No job of this queue runs or waits.</Empty>
      )}
    </Card>
  );
}

const usersOf = (queue: string, most: number): Column<QueueDetail["users"][number]>[] => [
  {
    name: "User",
    look: "tight",
    of: (one) => (
      <Link to="/jobs" search={{ owner: one.user, queue, whose: "all" }}>
        {one.user}
      </Link>
    ),
  },
  {
    name: "GPUs now",
    of: (one) => (
      <span className="metered">
        <Meter of={most} parts={[one.used]} />
        <span>{count(one.used)}</span>
      </span>
    ),
  },
  { name: "GPU hours", look: "number", of: (one) => count(one.used_gpu_hours) },
];

function Users({ queue }: { queue: QueueDetail }) {
  const most = Math.max(1, ...queue.users.map((one) => one.used));
  return (
    <Card title="Users" bare>
      {queue.users.length ? (
        <Table
          of="Users"
          rows={queue.users}
          keyOf={(one) => one.user}
          columns={usersOf(queue.name, most)}
        />
      ) : (
        <Empty>No user has used this queue.</Empty>
      )}
    </Card>
  );
}
