/** Rows of the list of jobs: arrays as one row each, and orders other than the newest first. */

import type { JobView } from "../api/types";

/** The jobs of an array that follow one another in the list. */
export interface Group {
  array: string;
  name: string;
  jobs: JobView[];
}
export type Row = JobView | Group;

export const isGroup = (row: Row): row is Group => "jobs" in row;
/** What the API calls the row: a job, or an array whole. */
export const nameOf = (row: Row): string => (isGroup(row) ? row.array : row.id);
export const jobsOf = (row: Row): readonly JobView[] => (isGroup(row) ? row.jobs : [row]);
const LEAST_OF_GROUP = 3;

/** The rows with the jobs of each array together, but for the array that is looked at. */
export function grouped(jobs: readonly JobView[], shown: string): Row[] {
  const rows: Row[] = [];
  let run: JobView[] = [];
  const close = () => {
    const [first] = run;
    if (first?.array && run.length >= LEAST_OF_GROUP && first.array !== shown)
      rows.push({ array: first.array, name: first.name.replace(/_\d+$/, ""), jobs: run });
    else rows.push(...run);
    run = [];
  };
  for (const job of jobs) {
    if (run.length && (job.array === null || run[0]?.array !== job.array)) close();
    run.push(job);
  }
  close();
  return rows;
}

/** For example: 5 running, 3 queued. */
export function states(group: Group): string {
  const counts = new Map<string, number>();
  for (const job of group.jobs) counts.set(job.state, (counts.get(job.state) ?? 0) + 1);
  return [...counts].map(([state, count]) => `${count} ${state.toLowerCase()}`).join(", ");
}

const gpus = (job: JobView): number => job.held_gpus ?? job.shape.nodes * job.shape.gpus_per_node;
export const ranSeconds = (job: JobView, now: number): number =>
  (job.ended_at ?? now) - (job.started_at ?? job.submitted_at);

type Key = (job: JobView, now: number) => number | string;
export const SORTS: Record<string, Key> = {
  state: (job) => job.state,
  name: (job) => job.name,
  owner: (job) => job.owner,
  queue: (job) => job.queue,
  gpus,
  submitted: (job) => job.submitted_at,
  ran: ranSeconds,
  ended: (job) => job.ended_at ?? Number.POSITIVE_INFINITY,
};
const natural = new Intl.Collator("en", { numeric: true });

/** By the key: numbers the most first, words in their order; turned where it begins with a dash. */
export function sorted(jobs: readonly JobView[], sort: string | undefined, now: number): JobView[] {
  const by = SORTS[sort?.replace(/^-/, "") ?? ""];
  if (!by) return [...jobs];
  const found = [...jobs].sort((one, two) => {
    const [left, right] = [by(one, now), by(two, now)];
    if (typeof left === "number" && typeof right === "number")
      return left === right ? 0 : right - left;
    return natural.compare(String(left), String(right));
  });
  return sort?.startsWith("-") ? found.reverse() : found;
}

/** The sort after a click on the column: it, it turned, and the newest first again. */
export function nextSort(sort: string | undefined, name: string): string | undefined {
  if (sort === name) return `-${name}`;
  return sort === `-${name}` ? undefined : name;
}
