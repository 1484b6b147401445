/** How long jobs have waited. */

import type { JobView } from "../api/types";

export interface Waits {
  jobs: number;
  half: number;
  most: number;
  longest: number;
}

/** Of the jobs that have started: the wait that half, and nine of ten, did not exceed. */
export function waitsOf(jobs: readonly JobView[]): Waits | undefined {
  const waits = jobs
    .flatMap((job) => (job.started_at === null ? [] : job.started_at - job.submitted_at))
    .sort((one, two) => one - two);
  const at = (share: number) => waits[Math.ceil(share * waits.length) - 1] ?? 0;
  if (!waits.length) return undefined;
  return { jobs: waits.length, half: at(0.5), most: at(0.9), longest: at(1) };
}
