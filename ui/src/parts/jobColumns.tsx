/** Columns that several tables of jobs have. */

import { Link } from "@tanstack/react-router";
import type { JobView } from "../api/types";
import { Lasted, State } from "./basic";
import { Linked } from "./Linked";
import { shape } from "./say";
import type { Column } from "./Table";

export const JOB: Column<Pick<JobView, "id" | "name">> = {
  name: "Job",
  look: "tight",
  of: (job) => (
    <Link to="/jobs/$job" params={{ job: job.id }}>
      {job.name} <span className="soft">{job.id}</span>
    </Link>
  ),
};

export const STATE: Column<Pick<JobView, "state">> = {
  name: "State",
  look: "tight",
  of: (job) => <State is={job.state} />,
};

export const OWNER: Column<Pick<JobView, "owner">> = {
  name: "Owner",
  look: "tight soft",
  of: (job) => job.owner,
};

export const QUEUE: Column<Pick<JobView, "queue">> = {
  name: "Queue",
  look: "tight soft",
  of: (job) => (
    <Link to="/queues/$queue" params={{ queue: job.queue }}>
      {job.queue}
    </Link>
  ),
};

export const ASKS: Column<Pick<JobView, "shape">> = {
  name: "Asks for",
  look: "tight",
  of: (job) => shape(job.shape),
};

/** How long it runs or waits. */
export const SINCE: Column<Pick<JobView, "started_at" | "submitted_at">> = {
  name: "Since",
  look: "number",
  of: (job) => <Lasted from={job.started_at ?? job.submitted_at} />,
};

/** Why it is where it is, or where that is. */
export const WHY: Column<{ reason: string; nodes?: string[] }> = {
  name: "Why",
  look: "wide soft",
  of: (job) => {
    const text = job.reason || job.nodes?.join(", ");
    return text ? <Linked text={text} /> : null;
  },
};
