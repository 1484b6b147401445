/** What a job left: its attempts, its checkpoints, and the receipts of its interruptions. */

import type { AttemptView, CheckpointView, JobDetail, ReceiptView } from "../api/types";
import { At, Card, Lasted } from "../parts/basic";
import { failureName } from "../parts/Failed";
import { NodeLink } from "../parts/HeatMap";
import { bytes, count, duration } from "../parts/say";
import { type Column, Table } from "../parts/Table";

/** Whose budget of retries paid, as people say it. */
const FAULT_OF: Record<string, string> = {
  none: "",
  request: "",
  user: "the job",
  infra: "the cluster",
};

function howItEnded(one: AttemptView): string {
  if (one.evidence) return one.evidence;
  if (one.ended_at === null) return "";
  return one.cause === "request" ? "stopped on request" : "ended by itself";
}

const ATTEMPTS: Column<AttemptView>[] = [
  { name: "No.", look: "number", of: (one) => one.number },
  {
    name: "Placed",
    look: "tight",
    of: (one) => (
      <>
        <At at={one.placed_at} />
        {one.in_place && <p className="soft">restarted in place</p>}
      </>
    ),
  },
  {
    name: "Ran",
    look: "number",
    of: (one) =>
      one.running_at === null ? null : <Lasted from={one.running_at} to={one.ended_at} />,
  },
  {
    name: "Nodes, GPUs",
    look: "wide",
    of: (one) =>
      one.seats.map((seat) => (
        <span key={seat.node}>
          <NodeLink id={seat.node} />{" "}
          <span className="soft">{seat.gpus.length ? `[${seat.gpus.join(" ")}] ` : ""}</span>
        </span>
      )),
  },
  {
    name: "Steps",
    look: "tight",
    of: (one) => (one.last_step === null ? null : `${one.resume_step ?? 0} to ${one.last_step}`),
  },
  {
    name: "Fault of",
    look: "tight",
    of: (one) => {
      const fault = FAULT_OF[one.cause] ?? one.cause;
      if (!one.culprit) return fault;
      return (
        <>
          {fault || "–"}
          <p className="soft">{one.culprit}</p>
        </>
      );
    },
  },
  {
    name: "How it ended",
    look: "wide soft",
    of: (one) => {
      const text = howItEnded(one);
      if (!one.failure && !one.quote) return text;
      return (
        <>
          {one.failure && <b className="bad">{failureName(one.failure)} </b>}
          {text}
          {one.quote && <code className="quote">{one.quote}</code>}
        </>
      );
    },
  },
];

export function Attempts({ job }: { job: JobDetail }) {
  if (!job.attempts.length) return null;
  return (
    <Card title="Attempts" bare>
      <Table
        of="Attempts"
        rows={job.attempts.toReversed()}
        keyOf={(one) => `${one.number}`}
        columns={ATTEMPTS}
      />
    </Card>
  );
}

const CHECKPOINTS: Column<CheckpointView>[] = [
  { name: "Step", look: "number", of: (one) => count(one.step) },
  { name: "Saved", look: "tight", of: (one) => <At at={one.at} /> },
  { name: "Size", look: "number", of: (one) => bytes(one.size_bytes) },
  { name: "Took", look: "number", of: (one) => `${count(one.seconds)} s` },
  { name: "Training stalled", look: "number", of: (one) => `${count(one.stall_seconds)} s` },
  {
    name: "Verified",
    look: (one) => (one.quarantined ? "bad" : "good"),
    of: (one) => one.quarantined || "yes",
  },
  { name: "Where", look: "wide soft", of: (one) => <code>{one.path}</code> },
];

export function Checkpoints({ job }: { job: JobDetail }) {
  if (!job.checkpoints.length) return null;
  return (
    <Card title="Checkpoints" aside={`${count(job.checkpoints.length)} recorded`} bare>
      <Table
        of="Checkpoints"
        rows={job.checkpoints.toReversed()}
        keyOf={(one) => `${one.attempt}-${one.step}`}
        columns={CHECKPOINTS}
      />
    </Card>
  );
}

const RECEIPTS: Column<ReceiptView>[] = [
  { name: "At", look: "tight", of: (one) => <At at={one.seen_at} /> },
  { name: "Kind", look: "tight", of: (one) => one.kind },
  { name: "GPU time lost", look: "number", of: (one) => duration(one.gpu_seconds_lost) },
  { name: "Steps lost", look: "number", of: (one) => one.steps_lost },
  { name: "Description", look: "wide soft", of: (one) => one.text },
];

export function Receipts({ job }: { job: JobDetail }) {
  if (!job.receipts.length) return null;
  return (
    <Card title="Receipts" aside="what interruptions cost" bare>
      <Table
        of="Receipts"
        rows={job.receipts.toReversed()}
        keyOf={(one) => `${one.attempt}-${one.kind}-${one.seen_at}`}
        columns={RECEIPTS}
      />
    </Card>
  );
}
