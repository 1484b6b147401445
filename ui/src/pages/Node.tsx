/** One node: its devices and who holds them, its labels, what happened to it. */

import { useMutation, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { get, part, post } from "../api/http";
import { useNode } from "../api/queries";
import { noOperating, useWho } from "../api/rights";
import type { EventView, GpuSample, JobDetail, JobView, NodeDetail, NodeGpu } from "../api/types";
import { Ago, Card, Empty, Head, Meter, State, Wrong } from "../parts/basic";
import { Confirm } from "../parts/Confirm";
import { Curves } from "../parts/Curves";
import { Feed } from "../parts/Feed";
import { JOB, OWNER, STATE, WHY } from "../parts/jobColumns";
import { bytes, count, percent } from "../parts/say";
import { type Column, Table } from "../parts/Table";

export function Node() {
  const { node: id } = useParams({ from: "/nodes/$node" });
  const { data: node, error } = useNode(id);
  const history = useQuery({
    queryKey: [`node:${id}`, "events"],
    queryFn: () => get<{ events: EventView[] }>("/v1/events", { node: id, newest: 200 }),
  });
  return (
    <>
      <Head title={id} tab={node && `${node.liveness} · ${id}`} mark={node?.liveness}>
        {node && <State is={node.liveness} />}
        {node?.cordoned && <span className="tag">cordoned</span>}
        {node?.draining && <span className="tag">draining</span>}
        {node?.health && <span className="bad cut">{node.health}</span>}
        {node && <Actions node={node} />}
      </Head>
      <Wrong error={error} />
      {node && (
        <div className="grid">
          {node.liveness !== "alive" && <LostJobs ids={node.lost_jobs} />}
          <Devices node={node} />
        </div>
      )}
      {node && (
        <div className="grid two" style={{ marginTop: 16 }}>
          <div className="grid">
            <Health node={node} />
            <Checks node={node} />
            <GpuCurves node={node} />
            <About node={node} />
          </div>
          <Card title="History" bare>
            <Feed events={history.data?.events.toReversed() ?? []} />
          </Card>
        </div>
      )}
    </>
  );
}

function Actions({ node }: { node: NodeDetail }) {
  const client = useQueryClient();
  const denied = noOperating(useWho());
  const change = useMutation({
    mutationFn: (to: string) => post<NodeDetail>(`/v1/nodes/${part(node.id)}/${to}`),
    onSettled: () => client.invalidateQueries(),
  });
  const does = (to: string, name: string, says: string) => (
    <Confirm
      name={name}
      title={`${name} ${node.id}?`}
      says={says}
      onYes={() => change.mutate(to)}
      disabled={change.isPending}
      denied={denied}
    />
  );
  return (
    <div className="actions">
      {!node.cordoned &&
        does("cordon", "Cordon", "The node gets no new jobs. Running jobs continue.")}
      {!node.draining &&
        does("drain", "Drain", "The node gets no new jobs. Running jobs move to other nodes.")}
      {(node.cordoned || node.draining) &&
        does("uncordon", "Uncordon", "The node accepts jobs again.")}
      <Wrong error={change.error} />
    </div>
  );
}

const SHOWN_LOST = 20;
const LOST: Column<JobView>[] = [JOB, OWNER, STATE, { ...WHY, name: "Nodes or reason" }];

/** Jobs that ran here when it died, and what has become of them since. */
function LostJobs({ ids }: { ids: readonly string[] }) {
  const jobs = useQueries({
    queries: ids.slice(0, SHOWN_LOST).map((id) => ({
      queryKey: [`job:${id}`, "detail"],
      queryFn: () => get<JobDetail>(`/v1/jobs/${part(id)}`),
    })),
    combine: (all) => all.flatMap((one) => one.data ?? []),
  });
  if (!ids.length) return null;
  return (
    <Card
      title="Jobs lost with this node"
      aside={ids.length > SHOWN_LOST ? `${SHOWN_LOST} of ${count(ids.length)}` : undefined}
      bare
    >
      <Table of="Jobs lost with this node" rows={jobs} keyOf={(job) => job.id} columns={LOST} />
    </Card>
  );
}

/** How many can be had; of a node that is not there, none. */
function freeText(node: NodeDetail): string {
  if (node.liveness !== "alive") return `none available: the node is ${node.liveness}`;
  if (node.cordoned || node.draining || node.closed)
    return `${count(node.gpus.free)} of ${node.gpus.total} free, but the node accepts no jobs`;
  return `${count(node.gpus.free)} of ${node.gpus.total} free`;
}

function Devices({ node }: { node: NodeDetail }) {
  if (!node.devices.length)
    return (
      <Card title="GPUs">
        <Empty>This node has no GPUs.</Empty>
      </Card>
    );
  return (
    <Card title="GPUs" aside={freeText(node)} bare>
      <Table
        of="GPUs"
        rows={node.devices.map((gpu) => ({
          gpu,
          now: node.sample?.gpus.find((one) => one.index === gpu.index),
        }))}
        keyOf={({ gpu }) => `${gpu.index}`}
        columns={DEVICES}
      />
    </Card>
  );
}

/** A number with its unit; "" for what is not known. */
function told(value: number | null | undefined, unit: string): string {
  return value === null || value === undefined ? "" : `${count(Math.round(value))} ${unit}`;
}

interface Device {
  gpu: NodeGpu;
  now: GpuSample | undefined;
}

const DEVICES: Column<Device>[] = [
  { name: "GPU", look: "number", of: ({ gpu }) => <span title={gpu.uuid}>{gpu.index}</span> },
  {
    name: "Type",
    look: "tight",
    of: ({ gpu, now }) => (
      <>
        {gpu.type} {gpu.pretend && <span className="tag">pretend</span>}{" "}
        {gpu.slices ? <span className="tag">{gpu.slices} slices</span> : null}
        {now?.lost && <span className="bad">lost</span>}
        {now?.silent && <span className="warn">does not answer</span>}
      </>
    ),
  },
  { name: "Held by", look: "wide", of: ({ gpu }) => <HeldBy gpu={gpu} /> },
  {
    name: "Busy",
    of: ({ now }) => (
      <span className="metered">
        <Meter of={1} parts={[now?.utilisation ?? 0]} />
        <span className="tight">{now?.utilisation == null ? "–" : percent(now.utilisation)}</span>
      </span>
    ),
  },
  {
    name: "Memory",
    of: ({ gpu, now }) => (
      <span className="metered">
        <Meter of={gpu.memory_bytes} parts={[now?.memory_used_bytes ?? 0]} />
        <span className="tight">
          {now?.memory_used_bytes == null ? "– of " : `${bytes(now.memory_used_bytes)} of `}
          {bytes(gpu.memory_bytes)}
        </span>
      </span>
    ),
  },
  { name: "Power", look: "number", of: ({ now }) => told(now?.power_watts, "W") },
  { name: "Temperature", look: "number", of: ({ now }) => told(now?.temperature_celsius, "°C") },
  { name: "Clock", look: "number", of: ({ now }) => told(now?.sm_clock_mhz, "MHz") },
  {
    name: "Throttled by",
    look: ({ now }) => (now?.throttle.length ? "tight warn" : "tight soft"),
    of: ({ now }) => now?.throttle.join(", "),
  },
  {
    name: "ECC",
    title: "volatile errors: corrected, not corrected",
    look: ({ now }) => (now?.ecc_volatile_uncorrected ? "number bad" : "number"),
    of: ({ now }) =>
      `${now?.ecc_volatile_corrected ?? "–"} / ${now?.ecc_volatile_uncorrected ?? "–"}`,
  },
];

function HeldBy({ gpu }: { gpu: NodeGpu }) {
  return (
    <>
      {gpu.taken && <span className="warn">programs outside Corral </span>}
      {gpu.jobs.map((job) => (
        <Link key={job} className="linked" to="/jobs/$job" params={{ job }}>
          {job}{" "}
        </Link>
      ))}
      {!gpu.taken && !gpu.jobs.length && <span className="soft">no job</span>}
    </>
  );
}

const CONDITIONS: Column<NodeDetail["conditions"][number]>[] = [
  {
    name: "Fault",
    look: "wide",
    of: (one) => <span className={one.mended_at ? "soft" : "bad"}>{one.text}</span>,
  },
  {
    name: "On",
    look: "tight",
    of: (one) => one.uuid || (one.gpu === null ? one.device || "node" : `GPU ${one.gpu}`),
  },
  { name: "Count", look: "number", of: (one) => one.count },
  { name: "Since", look: "tight", of: (one) => <Ago at={one.since} /> },
  { name: "Repair", look: "wide", of: (one) => (one.mended_at ? "repaired" : one.remedy) },
];

function Health({ node }: { node: NodeDetail }) {
  const client = useQueryClient();
  const denied = noOperating(useWho());
  const clear = useMutation({
    mutationFn: () => post<NodeDetail>(`/v1/nodes/${part(node.id)}/clear`),
    onSettled: () => client.invalidateQueries({ queryKey: [`node:${node.id}`] }),
  });
  return (
    <Card
      title="Health"
      aside={
        node.conditions.length > 0 && (
          <Confirm
            name="Mark as repaired"
            title={`Is ${node.id} repaired?`}
            says="The faults of the node are removed from its record, and it accepts jobs again."
            onYes={() => clear.mutate()}
            disabled={clear.isPending}
            denied={denied}
          />
        )
      }
      bare
    >
      <Wrong error={clear.error} />
      {node.suspect && (
        <p className="notice" style={{ margin: 12 }}>
          Corral suspects a fault of this node and leaves the cordon to a person: too many nodes are
          suspect at once, or automatic cordons are off.
        </p>
      )}
      {node.conditions.length ? (
        <Table
          of="Health"
          rows={node.conditions}
          keyOf={(one) => `${one.kind}${one.code}${one.uuid || one.gpu}${one.device}`}
          columns={CONDITIONS}
        />
      ) : (
        <Empty>No fault is known.</Empty>
      )}
    </Card>
  );
}

const VERDICTS: Record<string, string> = { passed: "good", failed: "bad" };

/** What was measured, or may be expected: 3.01 TB/s, 12 ms, 2,000 files. */
function measured(value: number | null, unit: string): string {
  if (value === null) return "";
  if (unit.startsWith("listing ")) return `${count(value)} files`;
  if (unit.startsWith("B/s")) return `${bytes(value)}/s`;
  return unit === "s" ? `${count(Math.abs(value) * 1000)} ms` : `${count(value)} ${unit}`.trim();
}

const CHECKS: Column<NodeDetail["checks"][number]>[] = [
  {
    name: "Check",
    look: "wide",
    of: (one) => (
      <>
        {one.kind} <span className="soft">{one.gpu === null ? one.device : `GPU ${one.gpu}`}</span>
        {one.result === "failed" && <p className="bad">{one.text}</p>}
      </>
    ),
  },
  {
    name: "Result",
    look: "tight",
    of: (one) => <span className={`state ${VERDICTS[one.result] ?? "soft"}`}>{one.result}</span>,
  },
  { name: "Measured", look: "number", of: (one) => measured(one.value, one.unit) },
  { name: "Expected", look: "number", of: (one) => measured(one.expected, one.unit) },
  { name: "When", look: "tight", of: (one) => <Ago at={one.at} /> },
];

/** What active checks have shown last, what they are held against, and which are before it. */
function Checks({ node }: { node: NodeDetail }) {
  const waits = node.checkups.map((one) => one.kinds.join(", "));
  const running = node.checkups.some((one) => one.begun_at !== null);
  return (
    <Card
      title="Checks"
      aside={
        waits.length > 0
          ? `${running ? "being checked" : "to be checked when idle"}: ${[...new Set(waits)].join(", ")}`
          : undefined
      }
      bare
    >
      {node.checks.length ? (
        <Table
          of="Checks"
          rows={node.checks}
          keyOf={(one) => `${one.kind}${one.gpu}${one.device}`}
          titleOf={(one) => one.text}
          columns={CHECKS}
        />
      ) : (
        <Empty>
          This node was never checked. To check it, run: corral doctor gpu --node {node.id}
        </Empty>
      )}
    </Card>
  );
}

const HOURS = 1;

function GpuCurves({ node }: { node: NodeDetail }) {
  const [since] = useState(() => Date.now() / 1000 - HOURS * 3600);
  const [what, setWhat] = useState("utilisation");
  const chosen = CURVES[what];
  if (!node.devices.length || !chosen) return null;
  const fields = Object.fromEntries(
    node.devices.slice(0, 8).map((gpu) => [`gpu${gpu.index}.${what}`, `GPU ${gpu.index}`]),
  );
  return (
    <Card
      title="The last hour"
      aside={
        <select
          aria-label="Curves of"
          value={what}
          onChange={(event) => setWhat(event.target.value)}
        >
          {Object.entries(CURVES).map(([name, one]) => (
            <option key={name} value={name}>
              {one.says}
            </option>
          ))}
        </select>
      }
    >
      <Curves
        key={what}
        of={`node:${node.id}`}
        since={since}
        fields={fields}
        unit={chosen.unit}
        times={chosen.times}
      />
    </Card>
  );
}

const CURVES: Record<string, { says: string; unit: string; times: number }> = {
  utilisation: { says: "Utilisation", unit: "%", times: 100 },
  memory: { says: "Memory", unit: "%", times: 100 },
  power_watts: { says: "Power", unit: "W", times: 1 },
  temperature_celsius: { says: "Temperature", unit: "°C", times: 1 },
  sm_clock_mhz: { says: "Clock", unit: "MHz", times: 1 },
};

function About({ node }: { node: NodeDetail }) {
  const labels = Object.entries(node.labels);
  return (
    <Card title="About">
      <dl className="pairs">
        <dt>State</dt>
        <dd>
          {node.liveness} since <Ago at={node.since} />
          {node.why && `: ${node.why}`}
        </dd>
        {node.closed && (
          <>
            <dt>Closed</dt>
            <dd>{node.closed}</dd>
          </>
        )}
        <dt>Address</dt>
        <dd>{node.address}</dd>
        <dt>CPUs</dt>
        <dd>
          {count(node.cpus)}
          {node.taken_cpus ? `, ${count(node.taken_cpus)} used outside Corral` : ""}
        </dd>
        <dt>Memory</dt>
        <dd>
          {bytes(node.memory_bytes)}
          {node.taken_memory_bytes ? `, ${bytes(node.taken_memory_bytes)} used outside Corral` : ""}
        </dd>
        <dt>Containment</dt>
        <dd>{node.containment}</dd>
        <dt>Boot</dt>
        <dd>
          <code>{node.boot}</code>
        </dd>
        <dt>Labels</dt>
        <dd>
          {labels.length
            ? labels.map(([name, value]) => (
                <span key={name} className="tag">
                  {name}={value}
                </span>
              ))
            : "none"}
        </dd>
      </dl>
    </Card>
  );
}
