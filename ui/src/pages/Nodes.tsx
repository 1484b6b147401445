/** All nodes: how they are, what they give, who is on them. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { post } from "../api/http";
import { useHeat, useStatus } from "../api/queries";
import { noOperating, useWho } from "../api/rights";
import type { NodeView } from "../api/types";
import { At, Card, Empty, Head, Meter, State, Wrong } from "../parts/basic";
import { Confirm } from "../parts/Confirm";
import { busyShare, HeatMap, NodeLink, usedGpus } from "../parts/HeatMap";
import { bytes, count, ownTime, percent, plural } from "../parts/say";
import { type Column, Table } from "../parts/Table";

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
          <option value="ill">With problems</option>
          <option value="free">With free GPUs</option>
          <option value="closed">Cordoned or draining</option>
        </select>
        <span className="soft" role="status">
          {found.length === nodes.length ? "" : `${plural(found.length, "node")} shown`}
        </span>
      </div>
      <div className="grid">
        <Card title="GPUs by node">
          {found.length ? <HeatMap nodes={found} /> : <Empty>No node matches these filters.</Empty>}
        </Card>
        <Card title="Nodes" bare>
          <NodeTable nodes={found} />
        </Card>
      </div>
    </>
  );
}

function is(node: NodeView, only: string): boolean {
  const closed = node.cordoned || node.draining || node.closed !== "";
  if (only === "ill")
    return node.liveness !== "alive" || closed || node.health !== "" || node.suspect;
  if (only === "closed") return closed;
  return only !== "free" || (node.gpus.free > 0 && node.liveness === "alive" && !closed);
}

function says(node: NodeView, text: string): boolean {
  const labels = Object.entries(node.labels).map(([name, value]) => `${name}=${value}`);
  return [node.id, ...node.gpus.types, ...labels].some((one) =>
    one.toLowerCase().includes(text.toLowerCase()),
  );
}

function busyOf(node: NodeView): string {
  const share = busyShare(node);
  return share === undefined ? "–" : percent(Math.round(share * 1000) / 1000);
}

function Suspects({ nodes }: { nodes: readonly NodeView[] }) {
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
        Corral suspects a fault of {plural(suspects.length, "node")} and leaves the cordon to you:{" "}
        {names.join(", ")}
        {more}.
      </p>
      <Confirm
        name="Cordon them"
        title={`Cordon ${plural(suspects.length, "node")}?`}
        says="The nodes get no new jobs. Running jobs continue."
        onYes={() => cordon.mutate()}
        denied={denied}
      />
      <Wrong error={cordon.error} />
    </div>
  );
}

const PAGE = 50;
const natural = new Intl.Collator("en", { numeric: true });

interface NodeColumn extends Column<NodeView> {
  /** What it is sorted by: numbers the most first, words in their natural order. */
  by?: (node: NodeView) => number | string;
}

const rackOf = (node: NodeView): string => node.labels.rack ?? node.labels.domain ?? "";
const isThere = (node: NodeView): boolean => node.liveness === "alive";

function columnsOf(heat: ReadonlyMap<string, number>): NodeColumn[] {
  const heatOf = (node: NodeView): number => heat.get(node.id) ?? -1;
  return [
    {
      name: "Node",
      look: "tight",
      by: (node) => node.id,
      of: (node) => (
        <b>
          <NodeLink id={node.id} />
        </b>
      ),
    },
    { name: "State", look: "tight", by: (node) => node.liveness, of: stateOf },
    { name: "Rack", look: "tight soft", by: rackOf, of: rackOf },
    { name: "GPUs used", by: usedGpus, of: gpusOf },
    {
      name: "Busy",
      look: "tight",
      by: (node) => busyShare(node) ?? -1,
      of: (node) => isThere(node) && busyOf(node),
    },
    {
      name: "Temperature",
      look: "number",
      by: heatOf,
      of: (node) => (isThere(node) && heatOf(node) >= 0 ? `${count(heatOf(node))} °C` : null),
    },
    {
      name: "Type",
      look: "tight soft",
      by: (node) => node.gpus.types.join(),
      of: (node) => node.gpus.types.join(", "),
    },
    { name: "CPUs", look: "number", by: (node) => node.cpus, of: (node) => count(node.cpus) },
    {
      name: "Memory",
      look: "number",
      by: (node) => node.memory_bytes,
      of: (node) => bytes(node.memory_bytes),
    },
    { name: "Jobs", look: "number", by: (node) => node.jobs.length, of: jobsOf },
    {
      name: "Health",
      look: "wide",
      by: (node) => node.health,
      of: (node) =>
        node.health ? (
          <span className="bad">{node.health}</span>
        ) : (
          <span className="soft">{node.closed || "no known fault"}</span>
        ),
    },
    { name: "Alive since", look: "tight soft", of: sinceOf },
  ];
}

function stateOf(node: NodeView) {
  return (
    <>
      <State is={node.liveness} /> {node.cordoned && <span className="tag">cordoned</span>}{" "}
      {node.draining && <span className="tag">draining</span>}{" "}
      {node.suspect && <span className="tag">suspect</span>}
    </>
  );
}

function gpusOf(node: NodeView) {
  if (!isThere(node)) return <span className="soft">unavailable</span>;
  return (
    <span className="metered">
      <Meter of={node.gpus.total} parts={[usedGpus(node) - node.gpus.taken, node.gpus.taken]} />
      <span className="tight">
        {count(usedGpus(node))} of {node.gpus.total}
      </span>
    </span>
  );
}

function jobsOf(node: NodeView) {
  const [first, ...others] = node.jobs;
  if (first === undefined) return null;
  if (others.length) return count(node.jobs.length);
  return (
    <Link to="/jobs/$job" params={{ job: first }}>
      {first}
    </Link>
  );
}

function sinceOf(node: NodeView) {
  if (isThere(node)) return <At at={node.since} />;
  return (
    <>
      {node.liveness} since <At at={node.since} />: {ownTime(node.why)}
    </>
  );
}

/** The nodes by the column, the order turned where it is clicked again. */
export function sorted(
  nodes: readonly NodeView[],
  column: Pick<NodeColumn, "by"> | undefined,
  turned: boolean,
): NodeView[] {
  const by = column?.by ?? ((node: NodeView) => node.id);
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

function NodeTable({ nodes }: { nodes: readonly NodeView[] }) {
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
      <Table
        of="Nodes"
        rows={rows.slice(page * PAGE, (page + 1) * PAGE)}
        keyOf={(node) => node.id}
        columns={columns.map((one) =>
          one.by ? withSort(one, sort, (turned) => setSort({ name: one.name, turned })) : one,
        )}
      />
      {pages > 1 && (
        <nav className="pager" aria-label="Pages of nodes">
          <button type="button" disabled={page === 0} onClick={() => setPage(page - 1)}>
            Previous
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

/** The column with a head that sorts by it. */
function withSort(
  column: NodeColumn,
  sort: { name: string; turned: boolean },
  onSort: (turned: boolean) => void,
): NodeColumn {
  const own = sort.name === column.name;
  return {
    ...column,
    sorted: own ? (sort.turned ? "descending" : "ascending") : undefined,
    head: (
      <button type="button" className="sort" onClick={() => onSort(own && !sort.turned)}>
        {column.name}
        {own && <span aria-hidden="true">{sort.turned ? " ↑" : " ↓"}</span>}
      </button>
    ),
  };
}
