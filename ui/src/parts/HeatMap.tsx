/** Every node as a cell, its used GPUs as the filled part of it; racks in the order of names. */

import { Link, useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, memo, useMemo } from "react";
import type { NodeView } from "../api/types";
import { count } from "./say";

const FEW = 12; // nodes of a cluster whose cells are wide enough for a name

export function racksOf(nodes: readonly NodeView[]): [string, NodeView[]][] {
  const racks = new Map<string, NodeView[]>();
  for (const node of nodes) {
    const rack = node.labels.rack ?? node.labels.domain ?? "";
    const known = racks.get(rack);
    if (known) known.push(node);
    else racks.set(rack, [node]);
  }
  const order = new Intl.Collator("en", { numeric: true });
  for (const members of racks.values()) members.sort((one, two) => order.compare(one.id, two.id));
  return [...racks].sort(([one], [two]) => order.compare(one, two));
}

export function usedGpus(node: NodeView): number {
  return Math.max(0, node.gpus.total - node.gpus.free);
}

const IDLE_SHARE = 0.05; // a held GPU that is less busy waits for something

/** What the held GPUs of a node do on average; undefined: nobody knows. */
export function busyShare(node: NodeView): number | undefined {
  const known = node.gpus.held.flatMap((index) => node.gpus.utilisation[index] ?? []);
  return known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : undefined;
}

/** The colour of one GPU: free, held, held but idle; the busier, the stronger. */
function inkOf(node: NodeView, index: number, held: ReadonlySet<number>): string {
  if (!held.has(index)) return "var(--idle)";
  const busy = node.gpus.utilisation[index];
  if (busy === null || busy === undefined) return "var(--busy-3)";
  if (busy < IDLE_SHARE) return "var(--warn-fill)";
  return `var(--busy-${Math.min(4, 1 + Math.floor(busy * 4))})`;
}

/** Its GPUs side by side, as one picture. */
function fillOf(node: NodeView, apart = false): string {
  const held = new Set(node.gpus.held);
  const wide = 100 / Math.max(1, node.gpus.total);
  const stops = Array.from({ length: node.gpus.total }, (_, index) => {
    const ink = inkOf(node, index, held);
    const gap = apart && index ? `var(--card) ${index * wide}% calc(${index * wide}% + 2px), ` : "";
    return `${gap}${ink} 0 ${(index + 1) * wide}%`;
  });
  return stops.length > 1 ? `linear-gradient(90deg, ${stops.join(", ")})` : "none";
}

/** What a cell says to who cannot see it. */
export function saidOf(node: NodeView): string {
  const gpus = `${count(usedGpus(node))} of ${node.gpus.total} GPUs used`;
  const closed = node.draining ? ", draining" : node.cordoned ? ", cordoned" : "";
  const busy = busyShare(node);
  const does = busy === undefined ? "" : `, ${Math.round(busy * 100)} % busy`;
  const ill = node.health ? `, ${node.health}` : "";
  return `${node.id}: ${node.liveness}${closed}, ${gpus}${does}${ill}`;
}

export const HeatMap = memo(function HeatMap({ nodes }: { nodes: readonly NodeView[] }) {
  const racks = useMemo(() => racksOf(nodes), [nodes]);
  const navigate = useNavigate();
  const few = nodes.length <= FEW;
  const first = racks[0]?.[1][0]?.id;
  return (
    <div className="heat">
      <div
        role="group"
        aria-label="Nodes; use the arrow keys to move between them"
        className={few ? "racks few" : "racks"}
        onKeyDown={step}
        onClick={(event) => {
          if (event.metaKey || event.ctrlKey || !(event.target instanceof Element)) return;
          const node = event.target.closest("a")?.dataset.node;
          if (node === undefined) return;
          event.preventDefault();
          void navigate({ to: "/nodes/$node", params: { node } });
        }}
      >
        {racks.map(([rack, members]) => (
          <div className="rack" key={rack}>
            <h3>
              <span className="cut">{rack || "nodes"}</span>
              <span>
                {count(members.reduce((sum, node) => sum + usedGpus(node), 0))} /{" "}
                {members.reduce((sum, node) => sum + node.gpus.total, 0)}
              </span>
            </h3>
            <ul>
              {members.map((node) => (
                <Cell key={node.id} {...cellOf(node, node.id === first, few)} />
              ))}
            </ul>
          </div>
        ))}
      </div>
      <p className="legend">
        <span>
          <i className="used" /> held and busy (stronger blue: busier)
        </span>
        <span>
          <i className="idling" /> held but idle
        </span>
        <span>
          <i className="free" /> free
        </span>
        <span>
          <i className="closed" /> cordoned or draining
        </span>
        <span>
          <i className="ill" /> known fault
        </span>
        <span>
          <i className="away" /> silent or dead
        </span>
      </p>
    </div>
  );
});

/** One cell is reached by Tab; the arrows go on from there. */
function step(event: KeyboardEvent<HTMLElement>): void {
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[event.key];
  if (by === undefined) return;
  const cells = [...event.currentTarget.querySelectorAll("a")];
  const next = cells[cells.indexOf(document.activeElement as HTMLAnchorElement) + by];
  if (!next) return;
  event.preventDefault();
  for (const cell of cells) cell.tabIndex = cell === next ? 0 : -1;
  next.focus();
}

interface CellProps {
  id: string;
  kind: string | undefined;
  fill: string | undefined;
  says: string;
  reached: boolean;
}

function cellOf(node: NodeView, reached: boolean, apart: boolean): CellProps {
  const away = node.liveness !== "alive";
  const closed = !away && (node.cordoned || node.draining || node.closed !== "");
  return {
    id: node.id,
    kind: away ? "away" : closed ? "closed" : node.health ? "ill" : undefined,
    fill: away ? undefined : fillOf(node, apart),
    says: saidOf(node),
    reached,
  };
}

/** A plain link: a thousand of the router's would each listen. The group takes its clicks. */
const Cell = memo(function Cell({ id, kind, fill, says, reached }: CellProps) {
  return (
    <li>
      <a
        href={`/nodes/${encodeURIComponent(id)}`}
        data-node={id}
        className={kind}
        style={fill === undefined ? undefined : { backgroundImage: fill }}
        title={says}
        tabIndex={reached ? 0 : -1}
      >
        <span className="hidden">{says}</span>
      </a>
    </li>
  );
});

export function NodeLink({ id }: { id: string }) {
  return (
    <Link to="/nodes/$node" params={{ node: id }}>
      {id}
    </Link>
  );
}
