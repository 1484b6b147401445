/** How training goes: the newest beat, and the curves of loss and throughput. */

import type { JobDetail } from "../api/types";
import { Ago, Card, Meter } from "./basic";
import { Curves } from "./Curves";
import { count, percent } from "./say";

const LOSS = { loss: "loss" };
const THROUGHPUT = { samples_per_second: "throughput" };

export function Progress({ job }: { job: JobDetail }) {
  const beat = job.progress;
  if (!beat) return null;
  const parts = beat.data_seconds + beat.compute_seconds + beat.save_seconds;
  const since = job.started_at ?? job.submitted_at;
  return (
    <Card title="Training" aside={<Ago at={beat.at} />}>
      <div className="grid">
        <dl className="pairs">
          <dt>Step</dt>
          <dd className="metered">
            {beat.until ? <Meter of={beat.until} parts={[beat.step]} /> : null}
            <span>
              {count(beat.step)}
              {beat.until ? ` of ${count(beat.until)}` : ""}
            </span>
          </dd>
          {beat.loss !== null && (
            <>
              <dt>Loss</dt>
              <dd>{beat.loss.toPrecision(4)}</dd>
            </>
          )}
          {beat.samples_per_second !== null && (
            <>
              <dt>Throughput</dt>
              <dd>{count(beat.samples_per_second)} samples/s</dd>
            </>
          )}
          {parts > 0 && (
            <>
              <dt>Time goes to</dt>
              <dd>
                computing {percent(beat.compute_seconds / parts)}, data{" "}
                {percent(beat.data_seconds / parts)}, saves {percent(beat.save_seconds / parts)}
              </dd>
            </>
          )}
        </dl>
        {beat.loss !== null && <Curves of={`job:${job.id}`} since={since} fields={LOSS} unit="" />}
        {beat.samples_per_second !== null && (
          <Curves of={`job:${job.id}`} since={since} fields={THROUGHPUT} unit="samples/s" />
        )}
      </div>
    </Card>
  );
}
