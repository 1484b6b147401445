/** All nodes: how they are, what they give, who is on them. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { post } from "../api/http";
import { useHeat, useStatus } from "../api/queries";
import { noOperating, useWho } from "../api/rights";
import type { Node } from "../api/types";
import { At, Card, Empty, Head, Meter, Scroll, State, Wrong } from "../parts/basic";
import { Confirm } from "../parts/Confirm";
import { busyShare, HeatMap, NodeLink, usedGpus } from "../parts/HeatMap";
import { bytes, count, ownTime, percent, plural } from "../parts/say";

export function Nodes() {
  const { data, error } = useStatus();
  const [text, setText] = useState("");
  const [only, setOnly] = useState("all");
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
          <Table nodes={found} />
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

const PAGE = 50;
const natural = new Intl.Collator("en", { numeric: true });

interface Column {
  name: string;
  /** What it is sorted by: numbers the most first, words in their natural order. */
  by?: (node: Node) => number | string;
  number?: boolean;
}

const rackOf = (node: Node): string => node.labels.rack ?? node.labels.domain ?? "";

function columnsOf(heat: ReadonlyMap<string, number>): Column[] {
  return [
    { name: "Node", by: (node) => node.id },
    { name: "State", by: (node) => node.liveness },
    { name: "Rack", by: rackOf },
    { name: "GPUs used", by: usedGpus },
    { name: "Busy", by: (node) => busyShare(node) ?? -1 },
    { name: "Heat", by: (node) => heat.get(node.id) ?? -1, number: true },
    { name: "Type", by: (node) => node.gpus.types.join() },
    { name: "CPUs", by: (node) => node.cpus, number: true },
    { name: "Memory", by: (node) => node.memory_bytes, number: true },
    { name: "Jobs", by: (node) => node.jobs.length, number: true },
    { name: "Health", by: (node) => node.health },
    { name: "Alive since" },
  ];
}

/** The nodes by the column, the order turned where it is clicked again. */
export function sorted(
  nodes: readonly Node[],
  column: Column | undefined,
  turned: boolean,
): Node[] {
  const by = column?.by ?? ((node: Node) => node.id);
  const found = [...nodes].sort((one, two) => {
    const [left, right] = [by(one), by(two)];
    const order =
      typeof left === "number" && typeof right === "number"
        ? right - left
        : natural.compare(String(left), String(right));
    return order || natural.compare(one.id, two.id);
  });
  return turned ? found.reverse() : found;
}

function Table({ nodes }: { nodes: readonly Node[] }) {
  const heat = useHeat().data ?? new Map<string, number>();
  const [sort, setSort] = useState({ name: "Node", turned: false });
  const [asked, setPage] = useState(0);
  const columns = columnsOf(heat);
  const rows = sorted(
    nodes,
    columns.find((one) => one.name === sort.name),
    sort.turned,
  );
  const pages = Math.max(1, Math.ceil(rows.length / PAGE));
  const page = Math.min(asked, pages - 1);
  return (
    <>
      <Scroll of="Nodes">
        <table>
          <thead>
            <tr>
              {columns.map((one) => (
                <SortHead
                  key={one.name}
                  column={one}
                  sort={sort}
                  onSort={(turned) => setSort({ name: one.name, turned })}
                />
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(page * PAGE, (page + 1) * PAGE).map((node) => (
              <Row key={node.id} node={node} heat={heat.get(node.id)} />
            ))}
          </tbody>
        </table>
      </Scroll>
      {pages > 1 && (
        <nav className="pager" aria-label="Pages of nodes">
          <button type="button" disabled={page === 0} onClick={() => setPage(page - 1)}>
            Before
          </button>
          <span className="soft">
            {count(page * PAGE + 1)} to {count(Math.min(rows.length, (page + 1) * PAGE))} of{" "}
            {count(rows.length)}
          </span>
          <button type="button" disabled={page === pages - 1} onClick={() => setPage(page + 1)}>
            Next
          </button>
        </nav>
      )}
    </>
  );
}

function SortHead({
  column,
  sort,
  onSort,
}: {
  column: Column;
  sort: { name: string; turned: boolean };
  onSort: (turned: boolean) => void;
}) {
  const own = sort.name === column.name;
  const kind = column.number ? "number" : undefined;
  if (!column.by) return <th className={kind}>{column.name}</th>;
  return (
    <th className={kind} aria-sort={own ? (sort.turned ? "descending" : "ascending") : undefined}>
      <button type="button" className="sort" onClick={() => onSort(own && !sort.turned)}>
        {column.name}
        {own && <span aria-hidden="true">{sort.turned ? " ↑" : " ↓"}</span>}
      </button>
    </th>
  );
}

function Row({ node, heat }: { node: Node; heat: number | undefined }) {
  const there = node.liveness === "alive";
  return (
    <tr>
      <td className="tight">
        <b>
          <NodeLink id={node.id} />
        </b>
      </td>
      <td className="tight">
        <State is={node.liveness} /> {node.cordoned && <span className="tag">cordoned</span>}{" "}
        {node.draining && <span className="tag">draining</span>}{" "}
        {node.suspect && <span className="tag">suspected</span>}
      </td>
      <td className="tight soft">{rackOf(node) || "–"}</td>
      <td>
        {there ? (
          <span className="metered">
            <Meter
              of={node.gpus.total}
              parts={[usedGpus(node) - node.gpus.taken, node.gpus.taken]}
            />
            <span className="tight">
              {count(usedGpus(node))} of {node.gpus.total}
            </span>
          </span>
        ) : (
          <span className="soft">none can be had</span>
        )}
      </td>
      <td className="tight">{there ? busyOf(node) : "–"}</td>
      <td className="number">
        {there && heat !== undefined && heat >= 0 ? `${count(heat)} °C` : "–"}
      </td>
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
      <td className="wide">
        {node.health ? (
          <span className="bad">{node.health}</span>
        ) : (
          <span className="soft">{node.closed || "nothing is wrong"}</span>
        )}
      </td>
      <td className="tight soft">
        {there ? (
          <At at={node.since} />
        ) : (
          <>
            {node.liveness} since <At at={node.since} />: {ownTime(node.why)}
          </>
        )}
      </td>
    </tr>
  );
}
