/** One service: its replicas and revisions, its rates and latencies, and why it was scaled. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { part, post, remove } from "../api/http";
import { useLent, useService } from "../api/queries";
import { noChange, useWho } from "../api/rights";
import type { LentToView, LentView, ReplicaView, RevisionView, ServiceView } from "../api/types";
import { Ago, Card, Empty, Head, State, Tile, Wrong } from "../parts/basic";
import { Confirm } from "../parts/Confirm";
import { Feed } from "../parts/Feed";
import { count, latency, ownTime, percent } from "../parts/say";
import { ServiceCurves } from "../parts/serviceCurves";
import { type Column, Table } from "../parts/Table";
import { modelOf, readyOf } from "./Services";

export function Service() {
  const { service: name } = useParams({ from: "/services/$service" });
  const { data: service, error } = useService(name);
  return (
    <>
      <Head title={name} mark={service?.condition}>
        {service && <State is={service.condition} />}
        {service && <Actions service={service} />}
      </Head>
      <Wrong error={error} />
      {service?.problem && (
        <p className="warn" style={{ marginBottom: 12 }}>
          {ownTime(service.problem)}
        </p>
      )}
      {service && <Measured service={service} />}
      {service && (
        <div className="grid two" style={{ marginTop: 16 }}>
          <div className="grid">
            <Replicas service={service} />
            <ServiceCurves service={service.name} />
            <Lent service={service} />
            <Revisions service={service} />
            <About service={service} />
          </div>
          <div className="grid">
            <Card title="Scaling and canaries" bare>
              {service.scale_events.length ? (
                <Feed events={service.scale_events.toReversed()} about={service.id} />
              ) : (
                <Empty>The number of replicas has not changed.</Empty>
              )}
            </Card>
            <Card title="Events" bare>
              <Feed events={service.events.toReversed()} about={service.id} />
            </Card>
          </div>
        </div>
      )}
    </>
  );
}

function Actions({ service }: { service: ServiceView }) {
  const client = useQueryClient();
  const denied = noChange(useWho(), service, "service");
  const path = `/v1/services/${part(service.name)}`;
  const settled = { onSettled: () => client.invalidateQueries({ queryKey: ["services"] }) };
  const back = useMutation({ mutationFn: () => post(`${path}/rollback`), ...settled });
  const stop = useMutation({ mutationFn: () => remove(path), ...settled });
  if (service.state !== "ACTIVE") return null;
  return (
    <div className="actions">
      {service.revisions.length > 1 && (
        <Confirm
          name="Roll back"
          title={`Roll ${service.name} back?`}
          says="A canary is ended. Without one, the previous revision replaces the replicas."
          onYes={() => back.mutate()}
          disabled={back.isPending}
          denied={denied}
        />
      )}
      <Confirm
        name="Stop"
        title={`Stop ${service.name}?`}
        says="The replicas finish the requests under way, and end."
        onYes={() => stop.mutate()}
        danger
        disabled={stop.isPending}
        denied={denied}
      />
      <Wrong error={back.error ?? stop.error} />
    </div>
  );
}

function Measured({ service }: { service: ServiceView }) {
  const { rates } = service;
  const lent = useLent().data?.services.find((one) => one.service === service.name);
  return (
    <dl className="tiles">
      <Tile name="Ready" note={`${service.replicas} allowed`}>
        {readyOf(service)}
      </Tile>
      <Tile name="Requests/s" note={`${count(rates.failed_per_second)} of them failed`}>
        {count(rates.requests_per_second)}
      </Tile>
      <Tile name="Under way" note={`${count(rates.tokens_per_second)} tokens/s`}>
        {count(rates.under_way)}
      </Tile>
      <Tile name="TTFT p90" note={`p50 ${latency(rates.ttft_p50_seconds)}`}>
        {latency(rates.ttft_p90_seconds)}
      </Tile>
      <Tile name="ITL p90" note={`p50 ${latency(rates.itl_p50_seconds)}`}>
        {latency(rates.itl_p90_seconds)}
      </Tile>
      <Tile name="Cached" note="of the prompts' tokens">
        {rates.cached_share === null ? "–" : percent(rates.cached_share)}
      </Tile>
      {service.million_token_cost !== null && (
        <Tile name="A million tokens" note="since yesterday (UTC)">
          {count(service.million_token_cost)} <small>{service.currency}</small>
        </Tile>
      )}
      {lent && lent.asleep_gpu_hours > 0 && (
        <Tile name="Lent" note={lentNote(lent)}>
          {count(lent.lent_gpu_hours)} <small>of {count(lent.asleep_gpu_hours)} GPU-h asleep</small>
        </Tile>
      )}
    </dl>
  );
}

/** How often GPUs were taken back from other jobs, and how often in time. */
export function lentNote(lent: Pick<LentView, "take_backs" | "take_backs_in_time">): string {
  if (!lent.take_backs) return "never taken back from a job";
  return `taken back ${lent.take_backs} times, ${lent.take_backs_in_time} in time`;
}

/** Borrowers of the GPUs of sleeping replicas, as `corral report lent` lists them. */
function Lent({ service }: { service: ServiceView }) {
  const report = useLent().data;
  const lent = report?.services.find((one) => one.service === service.name);
  if (!report || !lent || !(lent.asleep_gpu_hours || lent.borrowers.length)) return null;
  return (
    <Card title="Lent GPUs" aside={lentAside(lent, report.currency)} bare>
      {lent.borrowers.length ? (
        <Table
          of="Borrowers"
          rows={lent.borrowers}
          keyOf={(one) => `${one.queue} ${one.user} ${one.gpu_type}`}
          columns={borrowerColumns(report.currency)}
        />
      ) : (
        <Empty>No job has used GPUs of a sleeping replica.</Empty>
      )}
    </Card>
  );
}

/** What the GPUs of sleeping replicas were used for, in all. */
export function lentAside(
  lent: Pick<
    LentView,
    "asleep_gpu_hours" | "lent_gpu_hours" | "lost_gpu_hours" | "earned" | "wake_seconds"
  >,
  currency: string,
): string {
  const parts = [
    `${count(lent.lent_gpu_hours)} of ${count(lent.asleep_gpu_hours)} GPU-h asleep were lent`,
    lent.lost_gpu_hours > 0 && `${count(lent.lost_gpu_hours)} of them lost`,
    lent.earned > 0 && `earned ${count(lent.earned)} ${currency}`,
    lent.wake_seconds !== null && `slowest wake ${latency(lent.wake_seconds)}`,
  ];
  return parts.filter(Boolean).join("; ");
}

function borrowerColumns(currency: string): Column<LentToView>[] {
  return [
    { name: "User", look: "tight", of: (one) => one.user },
    { name: "Queue", look: "tight", of: (one) => one.queue },
    { name: "GPU", look: "wide", of: (one) => one.gpu_type },
    { name: "GPU-hours", look: "number", of: (one) => count(one.gpu_hours) },
    { name: "Lost", look: "number", of: (one) => count(one.lost_gpu_hours) },
    {
      name: `Earned, ${currency}`,
      look: "number",
      of: (one) => (one.earned === null ? "–" : count(one.earned)),
    },
    { name: "Take-backs", look: "number", of: (one) => one.take_backs },
  ];
}

const REPLICAS: Column<ReplicaView>[] = [
  {
    name: "Replica",
    look: "tight",
    of: (replica) => (
      <Link className="linked" to="/jobs/$job" params={{ job: replica.job }}>
        {replica.name}
      </Link>
    ),
  },
  { name: "State", look: "tight", of: (replica) => <State is={replicaState(replica)} /> },
  { name: "Role", look: "tight", of: (replica) => replica.role },
  { name: "Revision", look: "number", of: (replica) => replica.revision },
  { name: "Nodes", look: "tight", of: (replica) => replica.nodes.join(", ") },
  {
    name: "Ready since",
    look: "tight",
    of: (replica) => replica.ready_at !== null && <Ago at={replica.ready_at} />,
  },
  { name: "Under way", look: "number", of: (replica) => replica.under_way },
  { name: "Reason", look: "wide soft", of: (replica) => ownTime(replica.reason) },
];

/** READY, DRAINING, or the state of its job. */
export function replicaState(
  replica: Pick<ReplicaView, "ready_at" | "draining_at" | "state">,
): string {
  if (replica.draining_at !== null) return "DRAINING";
  return replica.ready_at === null ? replica.state : "READY";
}

function Replicas({ service }: { service: ServiceView }) {
  return (
    <Card title="Replicas" aside={service.roles.length ? "" : ownTime(service.reason)} bare>
      {service.roles.map((one) => (
        <p key={one.role} className="soft" style={{ margin: 12 }}>
          {one.role}, {one.replicas} allowed: {ownTime(one.reason)}
        </p>
      ))}
      {service.replica_list.length ? (
        <Table
          of="Replicas"
          rows={service.replica_list}
          keyOf={(replica) => replica.job}
          columns={service.roles.length ? REPLICAS : REPLICAS.filter((one) => one.name !== "Role")}
        />
      ) : (
        <Empty>The service has no replicas now.</Empty>
      )}
      {service.last_end && (
        <p className="notice bad" style={{ margin: 12 }}>
          {ownTime(service.last_end)}
        </p>
      )}
    </Card>
  );
}

function Revisions({ service }: { service: ServiceView }) {
  const columns: Column<RevisionView>[] = [
    { name: "Revision", look: "number", of: (one) => one.number },
    { name: "State", look: "wide", of: (one) => revisionState(service, one.number) },
    { name: "Applied by", look: "tight", of: (one) => one.by },
    { name: "Applied", look: "tight", of: (one) => <Ago at={one.at} /> },
  ];
  return (
    <Card title="Revisions" bare>
      <Table
        of="Revisions"
        rows={service.revisions.toReversed()}
        keyOf={(one) => `${one.number}`}
        columns={columns}
      />
    </Card>
  );
}

type Rollout = Pick<
  ServiceView,
  "revision" | "canary" | "canary_passed" | "turned_back" | "turned_back_reason"
>;

export function revisionState(service: Rollout, number: number): string {
  if (number === service.revision) return "serves";
  if (number === service.canary)
    return service.canary_passed ? "replaces the one that serves" : "is tried as a canary";
  if (number === service.turned_back)
    return `did not pass its canary: ${ownTime(service.turned_back_reason)}`;
  return "";
}

function About({ service }: { service: ServiceView }) {
  return (
    <Card title="About">
      <dl className="pairs">
        <dt>Model</dt>
        <dd>{modelOf(service)}</dd>
        <dt>URL</dt>
        <dd>{service.url ? <code>{`${service.url}/v1`}</code> : "no gateway runs"}</dd>
        <dt>Owner</dt>
        <dd>
          {service.owner}, queue {service.queue}
        </dd>
        {service.spec && (
          <>
            <dt>Command</dt>
            <dd>
              <code>{String(service.spec.run)}</code>
            </dd>
          </>
        )}
      </dl>
    </Card>
  );
}
