/** Where a job's time went: one bar of all its seconds by their use, and what would raise it. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { jobTimeOf } from "../api/queries";
import type { JobDetail, JobTimeView } from "../api/types";
import { Card } from "../parts/basic";
import { duration, latency, percent } from "../parts/say";

/** The parts in the order of the bar, and the class of their colour. */
export const PARTS: [string, string][] = [
  ["useful", "useful"],
  ["save", "save"],
  ["slow rank", "slow"],
  ["starting", "begins"],
  ["restore", "restore"],
  ["lost steps", "lost"],
  ["hang", "hang"],
  ["queued", "waits"],
  ["stopped", "stopped"],
];

export function Goodput({ job }: { job: JobDetail }) {
  const asked = jobTimeOf(job.id, job.state);
  const { data } = useQuery({ ...asked, placeholderData: keepPreviousData });
  const time = data?.time;
  if (!time || job.attempts.length === 0) return null;
  return (
    <Card title="Where its time went">
      <TimeBar time={time} />
      <p className="soft">{summary(time)}</p>
      {data.advice.slice(0, 2).map((one) => (
        <p key={one.text} className="soft">
          {one.text}
        </p>
      ))}
    </Card>
  );
}

function TimeBar({ time }: { time: JobTimeView }) {
  const seconds = new Map(time.parts.map((one) => [one.part, one]));
  const shown = PARTS.flatMap(([part, look]) => {
    const one = seconds.get(part);
    return one && one.seconds > 0 ? [{ ...one, look }] : [];
  });
  const text = (one: { part: string; seconds: number; share: number }) =>
    `${one.part} ${duration(one.seconds)} (${percent(one.share)})`;
  return (
    <>
      <div className="line uses" role="img" aria-label={shown.map(text).join(", ")}>
        {shown.map((one) => (
          <i
            key={one.part}
            className={one.look}
            style={{ flexGrow: one.seconds }}
            title={text(one)}
          />
        ))}
      </div>
      <div className="legend uses">
        {shown.map((one) => (
          <span key={one.part}>
            <i className={one.look} />
            {text(one)}
          </span>
        ))}
      </div>
    </>
  );
}

/** ETTR, MTTF and MTTR, as far as they are known. */
export function summary(time: JobTimeView): string {
  const parts = [];
  if (time.ettr !== null)
    parts.push(`effective training time (ETTR) ${percent(time.ettr)} since its first start`);
  if (time.mttf_seconds !== null)
    parts.push(`mean time to failure (MTTF) ${duration(time.mttf_seconds)}`);
  if (time.mttr_seconds !== null)
    parts.push(`mean time to repair (MTTR) ${latency(time.mttr_seconds)}`);
  if (!time.reports_steps)
    parts.push("its program reports no steps, so all of its running time counts as useful");
  const text = parts.join("; ");
  return text && `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
