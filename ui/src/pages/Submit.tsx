/** A spec as text, what would come of it, and its submission. */

import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { post } from "../api/http";
import { noSubmit, useWho } from "../api/rights";
import type { JobView, PlannedJob } from "../api/types";
import { Card, Head, Wrong } from "../parts/basic";
import { duration, ownTime, shape } from "../parts/say";
import { specsIn } from "../parts/yaml";

const STARTS: [string, string][] = [
  ["One command", "name: hello\nresources: {cpu: 1}\nrun: echo hello from $(hostname)\n"],
  [
    "One GPU",
    "name: one-gpu\nresources: {gpu: 1, cpu: 4, memory: 16GB}\nmax_duration: 1h\nrun: nvidia-smi\n",
  ],
  [
    "Several nodes",
    "name: train\nnodes: 2\nresources: {gpu: 8, cpu: 32, memory: 256GB}\nper: gpu\nmax_duration: 4h\n" +
      "checkpoint: {path: ./ckpt, interval: auto, keep: 3}\nrun: python train.py\n",
  ],
  [
    "An array",
    "name: sweep\narray: 0-9%4\nresources: {cpu: 1}\nrun: echo index $CORRAL_ARRAY_INDEX\n",
  ],
];
const KEY = "corral-spec";

export function Submit() {
  const [text, setText] = useState(() => sessionStorage.getItem(KEY) ?? STARTS[0]?.[1] ?? "");
  const navigate = useNavigate();
  const denied = noSubmit(useWho());
  const write = (now: string) => {
    setText(now);
    sessionStorage.setItem(KEY, now);
    plan.reset();
  };
  const plan = useMutation({
    mutationFn: async () =>
      post<{ plan: PlannedJob[] }>("/v1/jobs?dry_run=1", { specs: specsIn(text), key: "plan" }),
  });
  const submit = useMutation({
    mutationFn: async () =>
      post<{ jobs: JobView[] }>("/v1/jobs", { specs: specsIn(text), key: crypto.randomUUID() }),
    onSuccess: ({ jobs }) => {
      const [first] = jobs;
      if (jobs.length === 1 && first)
        void navigate({ to: "/jobs/$job", params: { job: first.id } });
      else void navigate({ to: "/jobs" });
    },
  });
  return (
    <>
      <Head title="Submit a job" />
      <div className="grid two">
        <Card
          title={<label htmlFor="spec">Spec, in YAML</label>}
          aside={
            <select
              aria-label="Example"
              value=""
              onChange={(event) => write(STARTS[Number(event.target.value)]?.[1] ?? text)}
            >
              <option value="">Load an example …</option>
              {STARTS.map(([name], index) => (
                <option key={name} value={index}>
                  {name}
                </option>
              ))}
            </select>
          }
        >
          <div className="grid">
            <textarea
              id="spec"
              rows={22}
              spellCheck={false}
              value={text}
              onChange={(event) => write(event.target.value)}
            />
            <div className="tools">
              <button
                type="button"
                className="main"
                disabled={denied !== undefined || submit.isPending}
                title={denied}
                onClick={() => submit.mutate()}
              >
                {submit.isPending ? "Submitting …" : "Submit"}
              </button>
              <button
                type="button"
                disabled={denied !== undefined || plan.isPending}
                title={denied}
                onClick={() => plan.mutate()}
              >
                {plan.isPending ? "Trying …" : "Dry run"}
              </button>
              {denied && <span className="warn">{denied}</span>}
              <span className="soft">
                This page uploads no files. To submit a workdir, run <code>corral apply</code>.
              </span>
            </div>
            <Wrong error={submit.error ?? plan.error} />
          </div>
        </Card>
        <Card title="Result of a dry run">
          {plan.data ? (
            <div className="grid">
              {plan.data.plan.map((one, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: planned jobs have no ids yet
                <Planned key={index} job={one} />
              ))}
            </div>
          ) : plan.isPending ? (
            <p className="working" role="status">
              The head computes where the job would start.
            </p>
          ) : (
            <p className="soft">
              A dry run shows where the job would start, or what it would wait for.
            </p>
          )}
        </Card>
      </div>
    </>
  );
}

function Planned({ job }: { job: PlannedJob }) {
  return (
    <section className="grid" style={{ gap: 8 }} aria-label={job.name}>
      <p className={job.starts_now ? "notice good" : "notice"} style={{ margin: 0 }}>
        {job.starts_now
          ? `${job.name} would start now on ${job.seats.map((seat) => seat.node).join(", ")}`
          : `${job.name} would wait: ${ownTime(job.reason)}`}
      </p>
      <dl className="pairs">
        <dt>Asks for</dt>
        <dd>
          {shape(job.shape)}, {job.ranks} {job.ranks === 1 ? "rank" : "ranks"}
        </dd>
        <dt>Queue</dt>
        <dd>
          {job.queue}, priority {job.priority}
        </dd>
        {job.max_duration_seconds !== null && (
          <>
            <dt>Limit</dt>
            <dd>{duration(job.max_duration_seconds)}</dd>
          </>
        )}
        {job.forecast && (
          <>
            <dt>Starts</dt>
            <dd>{job.forecast.text}</dd>
          </>
        )}
        {job.stops.length > 0 && (
          <>
            <dt>Would preempt</dt>
            <dd className="warn">{job.stops.join(", ")}</dd>
          </>
        )}
      </dl>
      {job.suggestions.map((one) => (
        <p key={one} className="soft">
          {one}
        </p>
      ))}
    </section>
  );
}
