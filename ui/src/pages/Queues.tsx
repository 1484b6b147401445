/** Queues: what each may have, has, owes, and when its budget runs out. */

import { Link } from "@tanstack/react-router";
import { useQueues } from "../api/queries";
import type { BudgetRow, QueueRow } from "../api/types";
import { Card, Empty, Head, Meter, Scroll, Wrong } from "../parts/basic";
import { count, day, duration, full, percent } from "../parts/say";

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
          aside={data && `past use counts half after ${duration(data.half_life_seconds)}`}
          bare
        >
          {queues.length ? (
            <Scroll of="Share and use">
              <table>
                <thead>
                  <tr>
                    <th>Queue</th>
                    <th>GPUs used</th>
                    <th className="number">of its own</th>
                    <th className="number">Borrowed</th>
                    <th className="number">Owes</th>
                    <th className="number">Running</th>
                    <th className="number">Waiting</th>
                    <th className="number" title="The part of the cluster that its weight gives it">
                      Share due
                    </th>
                    <th className="number">GPU hours</th>
                  </tr>
                </thead>
                <tbody>
                  {queues.map((queue) => (
                    <Row key={queue.name} queue={queue} most={most} />
                  ))}
                </tbody>
              </table>
            </Scroll>
          ) : (
            !isPending && (
              <Empty>
                No queue is set: all share the cluster. Make one with <code>corral queue set</code>.
              </Empty>
            )
          )}
        </Card>
        <Budgets queues={queues} />
      </div>
    </>
  );
}

function Row({ queue, most }: { queue: QueueRow; most: number }) {
  const own = Math.max(0, queue.used - queue.borrowed);
  return (
    <tr>
      <td className="tight">
        <span className="tree" style={{ "--depth": queue.depth } as React.CSSProperties} />
        <b>
          <Link to="/queues/$queue" params={{ queue: queue.name }}>
            {queue.name}
          </Link>
        </b>
      </td>
      <td>
        <span className="metered">
          <Meter of={most} parts={[own, queue.borrowed]} />
          <span>{count(queue.used)}</span>
        </span>
      </td>
      <td className="number">{count(queue.own)}</td>
      <td className={queue.borrowed ? "number warn" : "number soft"}>{count(queue.borrowed)}</td>
      <td className={queue.owes ? "number warn" : "number soft"}>{count(queue.owes)}</td>
      <td className="number">{count(queue.running)}</td>
      <td className="number">{count(queue.waiting)}</td>
      <td className="number">{percent(queue.due)}</td>
      <td className="number">{count(queue.used_gpu_hours)}</td>
    </tr>
  );
}

type Budgeted = Pick<QueueRow, "name" | "budget">;

export function Budgets({ queues }: { queues: readonly Budgeted[] }) {
  const with_ = queues.filter(
    (queue): queue is Budgeted & { budget: BudgetRow } => queue.budget !== null,
  );
  return (
    <Card title="Budgets" bare>
      {with_.length ? (
        <Scroll of="Budgets">
          <table>
            <thead>
              <tr>
                <th>Queue</th>
                <th>Spent</th>
                <th className="number">Left</th>
                <th>Runs out</th>
                <th>Renewed</th>
                <th>When it is spent</th>
              </tr>
            </thead>
            <tbody>
              {with_.map(({ name, budget }) => (
                <tr key={name}>
                  <td className="tight">
                    <b>{name}</b>
                  </td>
                  <td>
                    <span className="metered">
                      <Meter of={budget.amount} parts={[budget.spent]} />
                      <span className="tight">
                        {count(budget.spent)} of {count(budget.amount)} {budget.unit}
                      </span>
                    </span>
                  </td>
                  <td className={budget.is_spent ? "number bad" : "number"}>
                    {count(budget.left)}
                  </td>
                  <td className="tight">
                    {budget.is_spent ? (
                      <span className="bad">it is spent</span>
                    ) : budget.runs_out_at ? (
                      <span className="warn" title={full(budget.runs_out_at)}>
                        {day(budget.runs_out_at)}, if what is held is held on
                      </span>
                    ) : (
                      <span className="soft">not in its time</span>
                    )}
                  </td>
                  <td className="tight">{budget.renewed_at ? day(budget.renewed_at) : "never"}</td>
                  <td className="soft">{budget.effect}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      ) : (
        <Empty>No queue has a budget.</Empty>
      )}
    </Card>
  );
}
