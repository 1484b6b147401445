/** Queues: what each may have, has, owes, and when its budget runs out. */

import { Link } from "@tanstack/react-router";
import { useQueues } from "../api/queries";
import type { BudgetRow, QueueRow } from "../api/types";
import { Card, Empty, Head, Meter, Wrong } from "../parts/basic";
import { count, day, duration, full, percent } from "../parts/say";
import { type Column, Table } from "../parts/Table";

export function Queues() {
  const { data, error, isPending } = useQueues();
  const queues = data?.queues ?? [];
  const most = Math.max(1, ...queues.map((queue) => Math.max(queue.used, queue.own)));
  return (
    <>
      <Head title="Queues" />
      <Wrong error={error} />
      <div className="grid">
        <Card
          title="Share and use"
          aside={data && `past usage counts half after ${duration(data.half_life_seconds)}`}
          bare
        >
          {queues.length ? (
            <Table
              of="Share and use"
              rows={queues}
              keyOf={(queue) => queue.name}
              columns={sharesOf(most)}
            />
          ) : (
            !isPending && (
              <Empty>
                No queues are defined: all users share the cluster. To define one, run{" "}
                <code>corral queue set</code>.
              </Empty>
            )
          )}
        </Card>
        <Budgets queues={queues} />
      </div>
    </>
  );
}

const sharesOf = (most: number): Column<QueueRow>[] => [
  {
    name: "Queue",
    look: "tight",
    of: (queue) => (
      <>
        <span className="tree" style={{ "--depth": queue.depth } as React.CSSProperties} />
        <b>
          <Link to="/queues/$queue" params={{ queue: queue.name }}>
            {queue.name}
          </Link>
        </b>
      </>
    ),
  },
  {
    name: "GPUs used",
    of: (queue) => (
      <span className="metered">
        <Meter of={most} parts={[Math.max(0, queue.used - queue.borrowed), queue.borrowed]} />
        <span>{count(queue.used)}</span>
      </span>
    ),
  },
  { name: "Own GPUs", look: "number", of: (queue) => count(queue.own) },
  {
    name: "Borrowed",
    look: "number",
    of: (queue) => <Debt is={queue.borrowed} />,
  },
  { name: "Owes", look: "number", of: (queue) => <Debt is={queue.owes} /> },
  { name: "Running", look: "number", of: (queue) => count(queue.running) },
  { name: "Waiting", look: "number", of: (queue) => count(queue.waiting) },
  {
    name: "Share due",
    look: "number",
    title: "The share of the cluster to which the weight of the queue entitles it",
    of: (queue) => percent(queue.due),
  },
  { name: "GPU hours", look: "number", of: (queue) => count(queue.used_gpu_hours) },
];

function Debt({ is }: { is: number }) {
  return <span className={is ? "warn" : "soft"}>{count(is)}</span>;
}

type Budgeted = Pick<QueueRow, "name" | "budget">;
type WithBudget = Budgeted & { budget: BudgetRow };

const BUDGETS: Column<WithBudget>[] = [
  { name: "Queue", look: "tight", of: ({ name }) => <b>{name}</b> },
  {
    name: "Spent",
    of: ({ budget }) => (
      <span className="metered">
        <Meter of={budget.amount} parts={[budget.spent]} />
        <span className="tight">
          {count(budget.spent)} of {count(budget.amount)} {budget.unit}
        </span>
      </span>
    ),
  },
  {
    name: "Left",
    look: "number",
    of: ({ budget }) => (
      <span className={budget.is_spent ? "bad" : undefined}>{count(budget.left)}</span>
    ),
  },
  { name: "Runs out", look: "tight", of: ({ budget }) => <RunsOut is={budget} /> },
  {
    name: "Renewed",
    look: "tight",
    of: ({ budget }) => (budget.renewed_at ? day(budget.renewed_at) : "never"),
  },
  { name: "Effect when spent", look: "wide soft", of: ({ budget }) => budget.effect },
];

function RunsOut({ is: budget }: { is: BudgetRow }) {
  if (budget.is_spent) return <span className="bad">already spent</span>;
  if (!budget.runs_out_at) return <span className="soft">not before its end or renewal</span>;
  return (
    <span className="warn" title={full(budget.runs_out_at)}>
      {day(budget.runs_out_at)}, if the GPUs held now stay held
    </span>
  );
}

export function Budgets({ queues }: { queues: readonly Budgeted[] }) {
  const with_ = queues.filter((queue): queue is WithBudget => queue.budget !== null);
  return (
    <Card title="Budgets" bare>
      {with_.length ? (
        <Table of="Budgets" rows={with_} keyOf={({ name }) => name} columns={BUDGETS} />
      ) : (
        <Empty>No queue has a budget.</Empty>
      )}
    </Card>
  );
}
