/** One node: its devices and who holds them, its labels, what happened to it. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { get, part, post } from "../api/http";
import { useNode } from "../api/queries";
import { noOperating, useWho } from "../api/rights";
import type { Event, GpuSample, NodeDetail, NodeGpu } from "../api/types";
import { Ago, Card, Empty, Head, Meter, Scroll, State, Wrong } from "../parts/basic";
import { Confirm } from "../parts/Confirm";
import { Curves } from "../parts/Curves";
import { Feed } from "../parts/Feed";
import { bytes, count, percent } from "../parts/say";

export function Node() {
  const { node: id } = useParams({ from: "/nodes/$node" });
  const { data: node, error } = useNode(id);
  const history = useQuery({
    queryKey: [`node:${id}`, "events"],
    queryFn: () => get<{ events: Event[] }>("/v1/events", { node: id, newest: 200 }),
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
      {!node.cordoned && does("cordon", "Cordon", "It gets no new work; what runs there runs on.")}
      {!node.draining &&
        does("drain", "Drain", "It gets no new work, and what runs there is moved.")}
      {(node.cordoned || node.draining) && does("uncordon", "Uncordon", "It takes work again.")}
      <Wrong error={change.error} />
    </div>
  );
}

/** How many can be had; of a node that is not there, none. */
function freeText(node: NodeDetail): string {
  if (node.liveness !== "alive") return `none can be had: the node is ${node.liveness}`;
  if (node.cordoned || node.draining || node.closed)
    return `${count(node.gpus.free)} of ${node.gpus.total} free, but it takes no work`;
  return `${count(node.gpus.free)} of ${node.gpus.total} free`;
}

function Devices({ node }: { node: NodeDetail }) {
  if (!node.devices.length)
    return (
      <Card title="GPUs">
        <Empty>This node has none.</Empty>
      </Card>
    );
  return (
    <Card title="GPUs" aside={freeText(node)} bare>
      <Scroll of="GPUs">
        <table>
          <thead>
            <tr>
              <th className="number">GPU</th>
              <th>Type</th>
              <th>Held by</th>
              <th>Busy</th>
              <th>Memory</th>
              <th className="number">Power</th>
              <th className="number">Heat</th>
              <th className="number">Clock</th>
              <th>Throttled by</th>
              <th className="number" title="volatile errors: corrected, not corrected">
                ECC
              </th>
            </tr>
          </thead>
          <tbody>
            {node.devices.map((gpu) => (
              <Device
                key={gpu.index}
                gpu={gpu}
                now={node.sample?.gpus.find((one) => one.index === gpu.index)}
              />
            ))}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}

/** A number with its unit; what is not known is a dash. */
function told(value: number | null | undefined, unit: string): string {
  return value === null || value === undefined ? "–" : `${count(Math.round(value))} ${unit}`;
}

function Device({ gpu, now }: { gpu: NodeGpu; now: GpuSample | undefined }) {
  const busy = now?.utilisation;
  const ecc = [now?.ecc_volatile_corrected, now?.ecc_volatile_uncorrected];
  return (
    <tr>
      <td className="number" title={gpu.uuid}>
        {gpu.index}
      </td>
      <td className="tight">
        {gpu.type} {gpu.pretend && <span className="tag">pretend</span>}{" "}
        {gpu.slices ? <span className="tag">{gpu.slices} slices</span> : null}
        {now?.lost && <span className="bad">lost</span>}
        {now?.silent && <span className="warn">does not answer</span>}
      </td>
      <td className="tight">
        {gpu.taken && <span className="warn">others than Corral </span>}
        {gpu.jobs.map((job) => (
          <Link key={job} className="linked" to="/jobs/$job" params={{ job }}>
            {job}{" "}
          </Link>
        ))}
        {!gpu.taken && !gpu.jobs.length && <span className="soft">nobody</span>}
      </td>
      <td>
        <span className="metered">
          <Meter of={1} parts={[busy ?? 0]} />
          <span className="tight">{busy === null || busy === undefined ? "–" : percent(busy)}</span>
        </span>
      </td>
      <td>
        <span className="metered">
          <Meter of={gpu.memory_bytes} parts={[now?.memory_used_bytes ?? 0]} />
          <span className="tight">
            {now?.memory_used_bytes == null ? "– of " : `${bytes(now.memory_used_bytes)} of `}
            {bytes(gpu.memory_bytes)}
          </span>
        </span>
      </td>
      <td className="number">{told(now?.power_watts, "W")}</td>
      <td className="number">{told(now?.temperature_celsius, "°C")}</td>
      <td className="number">{told(now?.sm_clock_mhz, "MHz")}</td>
      <td className={now?.throttle.length ? "tight warn" : "tight soft"}>
        {now?.throttle.join(", ") || "–"}
      </td>
      <td className={ecc[1] ? "number bad" : "number"}>
        {ecc.map((one) => one ?? "–").join(" / ")}
      </td>
    </tr>
  );
}

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
        node.ailments.length > 0 && (
          <Confirm
            name="It is mended"
            title={`Is ${node.id} mended?`}
            says="What ails it is taken off its record, and it takes work again."
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
          It would be cordoned by itself, but so many are at once that this is left to a person.
        </p>
      )}
      {node.ailments.length ? (
        <Scroll of="Health">
          <table>
            <thead>
              <tr>
                <th>What</th>
                <th>On</th>
                <th className="number">Times</th>
                <th>Since</th>
                <th>What mends it</th>
              </tr>
            </thead>
            <tbody>
              {node.ailments.map((one) => (
                <tr key={`${one.kind}${one.code}${one.uuid || one.gpu}${one.device}`}>
                  <td className="wide">
                    <span className={one.mended_at ? "soft" : "bad"}>{one.text}</span>
                  </td>
                  <td className="tight">
                    {one.uuid || (one.gpu === null ? one.device || "node" : `GPU ${one.gpu}`)}
                  </td>
                  <td className="number">{one.count}</td>
                  <td className="tight">
                    <Ago at={one.since} />
                  </td>
                  <td className="wide">{one.mended_at ? "mended" : one.remedy}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      ) : (
        <Empty>Nothing is known to be wrong.</Empty>
      )}
    </Card>
  );
}

const VERDICTS: Record<string, string> = { passed: "good", failed: "bad" };

/** What was measured, or may be expected: 3.01 TB/s, 12 ms, 2,000 files. */
function measured(value: number | null, unit: string): string {
  if (value === null) return "–";
  if (unit.startsWith("listing ")) return `${count(value)} files`;
  if (unit.startsWith("B/s")) return `${bytes(value)}/s`;
  return unit === "s" ? `${count(Math.abs(value) * 1000)} ms` : `${count(value)} ${unit}`.trim();
}

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
        <Scroll of="Checks">
          <table>
            <thead>
              <tr>
                <th>Check</th>
                <th>Verdict</th>
                <th className="number">Measured</th>
                <th className="number">Expected</th>
                <th>When</th>
              </tr>
            </thead>
            <tbody>
              {node.checks.map((one) => (
                <tr key={`${one.kind}${one.gpu}${one.device}`} title={one.text}>
                  <td>
                    {one.kind}{" "}
                    <span className="soft">{one.gpu === null ? one.device : `GPU ${one.gpu}`}</span>
                    {one.result === "failed" && <p className="bad">{one.text}</p>}
                  </td>
                  <td className="tight">
                    <span className={`state ${VERDICTS[one.result] ?? "soft"}`}>{one.result}</span>
                  </td>
                  <td className="number">{measured(one.value, one.unit)}</td>
                  <td className="number">{measured(one.expected, one.unit)}</td>
                  <td className="tight">
                    <Ago at={one.at} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      ) : (
        <Empty>
          It was never put to the proof. On the command line: corral doctor gpu --node {node.id}
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
  utilisation: { says: "How busy", unit: "%", times: 100 },
  memory: { says: "Memory", unit: "%", times: 100 },
  power_watts: { says: "Power", unit: "W", times: 1 },
  temperature_celsius: { says: "Heat", unit: "°C", times: 1 },
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
          {node.taken_cpus ? `, ${count(node.taken_cpus)} held by others` : ""}
        </dd>
        <dt>Memory</dt>
        <dd>
          {bytes(node.memory_bytes)}
          {node.taken_memory_bytes ? `, ${bytes(node.taken_memory_bytes)} held by others` : ""}
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
