/** Times of a job's attempts: how long it ran, and over which span its curves reach. */

import type { AttemptView, JobDetail } from "../api/types";

/** A span of time in seconds since 1970. `until` null: it goes on. */
export interface Span {
  since: number;
  until: number | null;
}

const FIRST_SAMPLE_SECONDS = 10;

/** Seconds in which its ranks ran, over all attempts. */
export function ranSeconds(attempts: readonly AttemptView[], now: number): number {
  return attempts.reduce(
    (sum, one) =>
      sum + (one.running_at === null ? 0 : Math.max(0, (one.ended_at ?? now) - one.running_at)),
    0,
  );
}

/** GPU hours that the attempts have held. */
export function gpuHours(attempts: readonly AttemptView[], now: number): number {
  return attempts.reduce((sum, one) => {
    const gpus = one.seats.reduce((total, seat) => total + seat.gpu_count, 0);
    return sum + (gpus * ((one.ended_at ?? now) - one.placed_at)) / 3600;
  }, 0);
}

/** The span from the first attempt's placement to the last one's end, undefined before the first. */
export function wholeSpan(job: Pick<JobDetail, "attempts">): Span | undefined {
  const first = job.attempts[0];
  if (!first) return undefined;
  return { since: first.placed_at, until: job.attempts.at(-1)?.ended_at ?? null };
}

/** The part of an attempt that lies within a span, undefined where none does. */
export function within(attempt: AttemptView, span: Span): Span | undefined {
  const since = Math.max(attempt.placed_at, span.since);
  const ends = [attempt.ended_at, span.until].filter((one): one is number => one !== null);
  const until = ends.length ? Math.min(...ends) : null;
  return until === null || until - since > 0 ? { since, until } : undefined;
}

/** Whether a span is shorter than the time between two samples. */
export const isTooShort = (span: Span, now: number): boolean =>
  (span.until ?? now) - span.since < FIRST_SAMPLE_SECONDS;

/** Seconds until the last step, by the mean time of the steps of this attempt. */
export function secondsLeft(
  beat: NonNullable<JobDetail["progress"]>,
  now: number,
): number | undefined {
  const done = beat.step - beat.first_step;
  const spent = beat.data_seconds + beat.compute_seconds + beat.save_seconds;
  if (!beat.until || done < 1 || spent <= 0) return undefined;
  const left = ((beat.until - beat.step) * spent) / done - Math.max(0, now - beat.at);
  return Math.max(0, left);
}

/** The span of one attempt. */
export function spanOf(attempt: AttemptView): Span {
  return { since: attempt.placed_at, until: attempt.ended_at };
}
