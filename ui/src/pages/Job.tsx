/** One job: where it is and why, what it prints, how it learns, and what it has cost. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { part, post } from "../api/http";
import { FINAL, useIsArray, useJob, useJobEvents, useReport, useWhy } from "../api/queries";
import { noChange, useWho } from "../api/rights";
import type { JobDetail, Why as WhyAnswer } from "../api/types";
import { ArrayOf } from "../job/ArrayOf";
import { gpuHours, ranSeconds } from "../job/attempts";
import { Goodput } from "../job/Goodput";
import { Gpus } from "../job/Gpus";
import { Hang } from "../job/Hang";
import { Logs } from "../job/Logs";
import { Machines } from "../job/Machines";
import { Outputs } from "../job/Outputs";
import { useRange } from "../job/Range";
import { Spec } from "../job/Spec";
import { Stacks } from "../job/Stacks";
import { Training } from "../job/Training";
import { Ago, At, Card, Empty, Head, State, Wrong } from "../parts/basic";
import { Confirm } from "../parts/Confirm";
import { useNow } from "../parts/clock";
import { costOf } from "../parts/cost";
import { Failed } from "../parts/Failed";
import { Linked } from "../parts/Linked";
import { count, duration, full, plural, shape } from "../parts/say";
import { Attempts, Checkpoints, Receipts } from "./JobTables";

export function Job() {
  const { job: id } = useParams({ from: "/jobs/$job" });
  const isArray = useIsArray(id);
  const { data: job, error } = useJob(id, isArray === false);
  if (isArray || (!job && error)) return <ArrayOf key={id} id={id} unknown={error} />;
  return (
    <>
      <Head
        title={job ? job.name : id}
        tab={job && `${job.state.toLowerCase()} · ${job.name}`}
        mark={job?.state}
      >
        {job && <State is={job.state} />}
        {job && <span className="soft">{job.id}</span>}
        {job && <Actions job={job} />}
      </Head>
      <Wrong error={error} />
      {job && <Parts key={job.id} job={job} />}
    </>
  );
}

function Parts({ job }: { job: JobDetail }) {
  const range = useRange(job);
  return (
    <div className="grid">
      <div className="grid two">
        <div className="grid">
          <Why job={job} />
          <About job={job} />
        </div>
        <Timeline job={job} />
      </div>
      {range && <Training job={job} range={range} />}
      {job.run === null ? <NoLogs owner={job.owner} /> : <Logs job={job} />}
      <Goodput job={job} />
      <Hang job={job} />
      <Stacks job={job} />
      <Gpus job={job} />
      {range && <Machines job={job} range={range} />}
      <Outputs job={job} />
      <Attempts job={job} />
      <Spec job={job} />
      <Checkpoints job={job} />
      <Receipts job={job} />
    </div>
  );
}

/** Another's log is asked for by nobody who may not read it. */
function NoLogs({ owner }: { owner: string }) {
  return (
    <Card title="Logs">
      <Empty>Only {owner} and operators may read the log and the outputs of this job.</Empty>
    </Card>
  );
}

const CHANGES: [string, string, string, (state: string) => boolean][] = [
  [
    "suspend",
    "Suspend",
    "The job saves and stops. You can resume it later.",
    (state) => state === "RUNNING",
  ],
  [
    "requeue",
    "Requeue",
    "The job saves and stops, keeps its place in line, and starts again.",
    (state) => state === "RUNNING",
  ],
  [
    "resume",
    "Resume",
    "The job starts as soon as enough resources are free.",
    (state) => state === "SUSPENDED" || state === "HELD",
  ],
  [
    "cancel",
    "Cancel",
    "The job is stopped and does not start again.",
    (state) => !FINAL.has(state),
  ],
];

function Actions({ job }: { job: JobDetail }) {
  const client = useQueryClient();
  const denied = noChange(useWho(), job);
  const change = useMutation({
    mutationFn: (to: string) => post<JobDetail>(`/v1/jobs/${part(job.id)}/${to}`),
    onSettled: () => client.invalidateQueries({ queryKey: [`job:${job.id}`] }),
  });
  return (
    <div className="actions">
      {CHANGES.filter(([, , , may]) => may(job.state)).map(([to, name, says]) => (
        <Confirm
          key={to}
          name={name}
          danger={to === "cancel"}
          title={`${name} ${job.name}?`}
          says={says}
          onYes={() => change.mutate(to)}
          disabled={change.isPending}
          denied={denied}
        />
      ))}
      <Wrong error={change.error} />
    </div>
  );
}

function About({ job }: { job: JobDetail }) {
  const limit = job.max_duration_seconds;
  const rows: [string, React.ReactNode][] = [
    ["Owner", job.owner],
    ["Queue", `${job.queue}, priority ${job.priority}`],
    ["Asks for", shape(job.shape)],
    ["Submitted", <Ago key="at" at={job.submitted_at} />],
  ];
  if (job.nodes.length) rows.push(["Nodes", job.nodes.join(", ")]);
  if (job.started_at !== null) rows.push(["Ran for", <Ran key="ran" job={job} />]);
  const hours = gpuHours(job.attempts, Date.now() / 1000);
  if (hours > 0) rows.push(["Has held", <Cost key="cost" job={job} hours={hours} />]);
  if (limit !== null) rows.push(["Limit", duration(limit)]);
  if (job.exit_code !== null) rows.push(["Exit code", job.exit_code]);
  if (job.attempt > 1)
    rows.push([
      "Attempt",
      `${job.attempt} (retries: ${job.infra_retries} after faults, ${job.user_retries} after own failures)`,
    ]);
  if (job.place.constraints.length) rows.push(["Constraints", job.place.constraints.join(", ")]);
  return (
    <Card title="About">
      <dl className="pairs">
        {rows.map(([name, value]) => (
          <div key={name} style={{ display: "contents" }}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
        {job.run && (
          <>
            <dt>Runs</dt>
            <dd>
              <code>{job.run.length > 600 ? `${job.run.slice(0, 600)} …` : job.run}</code>
            </dd>
          </>
        )}
      </dl>
    </Card>
  );
}

/** The time in which its ranks ran, without that in which it waited between attempts. */
function Ran({ job }: { job: JobDetail }) {
  const seconds = ranSeconds(job.attempts, useNow());
  const several = job.attempts.length > 1;
  return `${duration(seconds)}${several ? `, in ${plural(job.attempts.length, "attempt")}` : ""}`;
}

function Cost({ job, hours }: { job: JobDetail; hours: number }) {
  const days = Math.min(90, Math.ceil((Date.now() / 1000 - job.submitted_at) / 86_400) + 1);
  const { data } = useReport("cost", "job", days);
  const cost = data ? costOf(data, job.id) : "";
  return (
    <>
      {count(hours)} GPU hours{cost && `, which cost ${cost}`}
    </>
  );
}

/** Where what its newest attempt failed of is not why it is there. */
const NO_MORE = new Set(["RUNNING", "DONE", "CANCELLED"]);

function Why({ job }: { job: JobDetail }) {
  const { data } = useWhy(job.id);
  const failed = NO_MORE.has(job.state) ? undefined : data?.failed;
  const said = data?.reason || job.reason;
  const again = failed && said.includes(failed.evidence); // it is said once, below
  return (
    <Card title={FINAL.has(job.state) ? "Result" : "Reason of the state"}>
      <div className="grid" style={{ gap: 8 }}>
        {!again && <p>{said || `The job is ${job.state.toLowerCase()}.`}</p>}
        {failed && <Failed is={failed} />}
        {data?.hang && !FINAL.has(job.state) && <p className="soft">{data.hang}</p>}
        {data?.place && (
          <p>
            Number {count(data.place)} of {count(data.waiting)} in line{" "}
            <span className="soft">(Slurm's reason code: {data.slurm})</span>
          </p>
        )}
        {data?.holders && (
          <p className="soft">
            <Linked text={data.holders} />
          </p>
        )}
        {job.state === "QUEUED" && data && <Start is={data.forecast} />}
        {data?.ending?.text && <p>{data.ending.text}</p>}
        {data?.forecast?.instead.map((one) => (
          <p key={one.change} className="soft">
            {one.change} it starts {one.starts.text}
          </p>
        ))}
        {data?.suggestions.map((one) => (
          <p key={one} className="soft">
            {one}
          </p>
        ))}
      </div>
    </Card>
  );
}

/** When it starts and ends. The first forecast of a job takes the head a moment. */
function Start({ is: one }: { is: WhyAnswer["forecast"] }) {
  if (!one) return <p className="soft">The start time is being predicted.</p>;
  if (one.is_too_late) return <p>{one.text}</p>;
  return (
    <p>
      It starts {one.text}, and ends {one.ends.text}.
    </p>
  );
}

function Timeline({ job }: { job: JobDetail }) {
  const { data } = useJobEvents(job.id);
  const events = data?.events ?? [];
  return (
    <Card title="What happened" bare>
      <div className="body">
        <Phases job={job} />
      </div>
      {events.length ? (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
        <ol className="steps feed short" tabIndex={0}>
          {events.toReversed().map((event) => (
            <li key={event.number}>
              <At at={event.at} />
              <p>{event.text}</p>
            </li>
          ))}
        </ol>
      ) : (
        <Empty>The events of this job are no longer kept.</Empty>
      )}
    </Card>
  );
}

/** Its life as a line: waiting, starting, running; each as wide as it was long. */
function Phases({ job }: { job: JobDetail }) {
  const end = job.ended_at ?? Date.now() / 1000;
  const phases: { kind: string; from: number; to: number; says: string }[] = [];
  let from = job.submitted_at;
  for (const one of job.attempts) {
    const ran = one.running_at ?? one.ended_at ?? end;
    phases.push({ kind: "waits", from, to: one.placed_at, says: "waited" });
    phases.push({ kind: "starts", from: one.placed_at, to: ran, says: "started" });
    from = one.ended_at ?? end;
    const failed = one.ended_at !== null && one.cause !== "none" && one.cause !== "request";
    phases.push({ kind: failed ? "fails" : "runs", from: ran, to: from, says: "ran" });
  }
  if (!FINAL.has(job.state) && job.attempts.at(-1)?.ended_at !== null)
    phases.push({ kind: "waits", from, to: end, says: "waits" });
  const told = phases.filter((one) => one.to - one.from > 0.001);
  return (
    <div
      className="line"
      role="img"
      aria-label={told.map((one) => `${one.says} ${duration(one.to - one.from)}`).join(", ")}
    >
      {told.map((one) => (
        <i
          key={`${one.kind}${one.from}`}
          className={one.kind}
          style={{ flexGrow: Math.max(one.to - one.from, (end - job.submitted_at) / 200) }}
          title={`${one.says} ${duration(one.to - one.from)} from ${full(one.from)}`}
        />
      ))}
    </div>
  );
}
