/** All nodes: how they are, what they give, who is on them. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { post } from "../api/http";
import { useStatus } from "../api/queries";
import { noOperating, useWho } from "../api/rights";
import type { Node } from "../api/types";
import { Ago, Card, Empty, Head, Meter, Scroll, State, Wrong } from "../parts/basic";
import { Confirm } from "../parts/Confirm";
import { busyShare, HeatMap, NodeLink, usedGpus } from "../parts/HeatMap";
import { bytes, count, percent, plural } from "../parts/say";

const AT_ONCE = 100;

export function Nodes() {
  const { data, error } = useStatus();
  const [text, setText] = useState("");
  const [only, setOnly] = useState("all");
  const [most, setMost] = useState(AT_ONCE);
  const nodes = data?.nodes ?? [];
  const found = useMemo(
    () => nodes.filter((node) => is(node, only) && says(node, text)),
    [nodes, only, text],
  );
  return (
    <>
      <Head title="Nodes">
        <span className="soft">{plural(nodes.length, "node")}</span>
      </Head>
      <Wrong error={error} />
      <Suspects nodes={nodes} />
      <div className="tools">
        <input
          type="search"
          className="find"
          placeholder="Name, GPU type or label"
          aria-label="Find nodes"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <select
          aria-label="Which nodes"
          value={only}
          onChange={(event) => setOnly(event.target.value)}
        >
          <option value="all">All</option>
          <option value="ill">With something wrong</option>
          <option value="free">With free GPUs</option>
          <option value="closed">Cordoned or draining</option>
        </select>
        <span className="soft" role="status">
          {found.length === nodes.length ? "" : `${count(found.length)} of them`}
        </span>
      </div>
      <div className="grid">
        <Card title="GPUs by node">
          {found.length ? <HeatMap nodes={found} /> : <Empty>No node is like that.</Empty>}
        </Card>
        <Card title="Nodes" bare>
          <Table nodes={found.slice(0, most)} />
          {found.length > most && (
            <p className="empty">
              <button type="button" onClick={() => setMost(most + 5 * AT_ONCE)}>
                Show more of {count(found.length)}
              </button>
            </p>
          )}
        </Card>
      </div>
    </>
  );
}

function is(node: Node, only: string): boolean {
  const closed = node.cordoned || node.draining || node.closed !== "";
  if (only === "ill")
    return node.liveness !== "alive" || closed || node.health !== "" || node.suspect;
  if (only === "closed") return closed;
  return only !== "free" || (node.gpus.free > 0 && node.liveness === "alive" && !closed);
}

function says(node: Node, text: string): boolean {
  const labels = Object.entries(node.labels).map(([name, value]) => `${name}=${value}`);
  return [node.id, ...node.gpus.types, ...labels].some((one) =>
    one.toLowerCase().includes(text.toLowerCase()),
  );
}

function busyOf(node: Node): string {
  const share = busyShare(node);
  return share === undefined ? "–" : percent(Math.round(share * 1000) / 1000);
}

function Suspects({ nodes }: { nodes: readonly Node[] }) {
  const client = useQueryClient();
  const denied = noOperating(useWho());
  const cordon = useMutation({
    mutationFn: () => post("/v1/suspects/cordon"),
    onSettled: () => client.invalidateQueries({ queryKey: ["status"] }),
  });
  const suspects = nodes.filter((node) => node.suspect);
  if (!suspects.length) return null;
  const names = suspects.slice(0, 8).map((node) => node.id);
  const more = suspects.length > names.length ? ` and ${suspects.length - names.length} more` : "";
  return (
    <div className="notice">
      <p>
        {plural(suspects.length, "node")} would be cordoned, and left to you: {names.join(", ")}
        {more}.
      </p>
      <Confirm
        name="Cordon them"
        title={`Cordon ${plural(suspects.length, "node")}?`}
        says="They get no new work; what runs there runs on."
        onYes={() => cordon.mutate()}
        denied={denied}
      />
      <Wrong error={cordon.error} />
    </div>
  );
}

function Table({ nodes }: { nodes: readonly Node[] }) {
  return (
    <Scroll of="Nodes">
      <table>
        <thead>
          <tr>
            <th>Node</th>
            <th>State</th>
            <th>GPUs used</th>
            <th>Busy</th>
            <th>Type</th>
            <th className="number">CPUs</th>
            <th className="number">Memory</th>
            <th className="number">Jobs</th>
            <th>Why, and since</th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((node) => (
            <tr key={node.id}>
              <td className="tight">
                <b>
                  <NodeLink id={node.id} />
                </b>
              </td>
              <td className="tight">
                <State is={node.liveness} />{" "}
                {node.cordoned && <span className="tag">cordoned</span>}{" "}
                {node.draining && <span className="tag">draining</span>}{" "}
                {node.suspect && <span className="tag">suspected</span>}
              </td>
              <td>
                <span className="metered">
                  <Meter
                    of={node.gpus.total}
                    parts={[usedGpus(node) - node.gpus.taken, node.gpus.taken]}
                  />
                  <span className="tight">
                    {count(usedGpus(node))} of {node.gpus.total}
                  </span>
                </span>
              </td>
              <td className="tight">{busyOf(node)}</td>
              <td className="tight soft">{node.gpus.types.join(", ") || "–"}</td>
              <td className="number">{count(node.cpus)}</td>
              <td className="number">{bytes(node.memory_bytes)}</td>
              <td className="number">
                {node.jobs.length === 1 ? (
                  <Link to="/jobs/$job" params={{ job: node.jobs[0] ?? "" }}>
                    {node.jobs[0]}
                  </Link>
                ) : (
                  node.jobs.length || "–"
                )}
              </td>
              <td className="wide soft">
                {node.health && <span className="bad">{node.health} · </span>}
                {[node.closed, node.why].filter(Boolean).join("; ")} <Ago at={node.since} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
