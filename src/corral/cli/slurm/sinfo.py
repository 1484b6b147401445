"""sinfo: queues as partitions, and the nodes that they share."""

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from corral.boot.clock import SystemClock
from corral.cli.slurm import columns
from corral.cli.slurm.columns import Field
from corral.cli.slurm.http_client import HeadClient
from corral.cli.slurm.job_columns import moment
from corral.cli.slurm.squeue import document, today
from corral.wire.slurm.hostlist import compress_sorted, expand
from corral.wire.slurm.listing_options import SINFO
from corral.wire.slurm.options import ParsedOptions

DEFAULT: Final = "%#P %.5a %.10l %.6D %.6t %N"
LONG: Final = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
NODES: Final = "%#N %.6D %.#P %6t"
NODES_LONG: Final = "%#N %.6D %.#P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
REASONS: Final = "%20E %9u %19H %N"
SUMMARY: Final = "%#P %.5a %.10l %.16F %N"
_COMPACT: Final = {
    "idle": "idle",
    "mixed": "mix",
    "allocated": "alloc",
    "drained": "drain",
    "draining": "drng",
    "down": "down",
    "unknown": "unk",
}
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Similar nodes of one partition. `limit`: the time limit of the partition as text."""

    partition: str
    nodes: tuple[Row, ...]
    limit: str = "infinite"

    @property
    def state(self) -> str:
        return state_of(self.nodes[0]) if self.nodes else "n/a"

    @property
    def star(self) -> str:
        return "*" if self.nodes and self.nodes[0]["liveness"] != "alive" else ""

    def sums(self, *, cpus: bool) -> str:
        """Return the text allocated/idle/other/total, which counts CPUs or nodes."""
        node_counts = [(node, int(node["cpus"]) if cpus else 1) for node in self.nodes]
        busy = sum(
            count
            for node_state, count in node_counts
            if state_of(node_state) in ("mixed", "allocated")
        )
        idle = sum(
            count for node_state, count in node_counts if state_of(node_state) == "idle"
        )
        total = sum(count for _, count in node_counts)
        return f"{busy}/{idle}/{total - busy - idle}/{total}"


def state_of(node: Row) -> str:
    """Return the long name of the node's state, without Slurm's star for a node that
    does not respond."""
    if node["liveness"] == "dead":
        return "down"
    if node["cordoned"] or node["draining"] or node.get("closed"):
        return "draining" if node["jobs"] else "drained"
    if node["liveness"] != "alive":
        return "unknown"
    if not node["jobs"] and not is_used_by_others(node):
        return "idle"
    gpus = node["gpus"]
    return "allocated" if gpus["total"] and gpus["free"] <= 0 else "mixed"


def is_used_by_others(node: Row) -> bool:
    return bool(node["gpus"].get("taken") or node.get("taken_cpus"))


def why_of(node: Row) -> str:
    """Return why the node is closed for new work or does not respond."""
    return str(node.get("closed") or node["why"])


def gres_of(node: Row) -> str:
    gpus = node["gpus"]
    if not gpus["total"]:
        return "(null)"
    kind = f"{gpus['types'][0]}:" if len(gpus["types"]) == 1 else ""
    return f"gpu:{kind}{gpus['total']}"


def features_of(node: Row) -> str:
    return (
        ",".join(f"{name}={value}" for name, value in node["labels"].items())
        or "(null)"
    )


def _format_minimum(found: Iterable[int]) -> str:
    minimum, *larger_numbers = sorted(set(found)) or [0]
    return f"{minimum}+" if larger_numbers else str(minimum)


def _make_field(title: str, value: Any) -> Field:
    return Field(title=title, value=value)


_NODE_LIST: Final = _make_field(
    "NODELIST", lambda one: compress_sorted([node["id"] for node in one.nodes])
)
_NONE: Final = "none"
LETTERS: Final = {
    "P": _make_field("PARTITION", lambda one: one.partition),
    "R": _make_field("PARTITION", lambda one: one.partition.rstrip("*")),
    "a": _make_field("AVAIL", lambda one: "up"),
    "l": _make_field("TIMELIMIT", lambda one: one.limit),
    "D": _make_field("NODES", lambda one: str(len(one.nodes))),
    "t": _make_field(
        "STATE", lambda one: _COMPACT.get(one.state, one.state) + one.star
    ),
    "T": _make_field("STATE", lambda one: one.state + one.star),
    "N": _NODE_LIST,
    "n": _make_field(
        "HOSTNAMES", lambda one: ",".join(node["id"] for node in one.nodes)
    ),
    "o": _make_field(
        "NODE_ADDR", lambda one: ",".join(node["address"] for node in one.nodes)
    ),
    "A": _make_field(
        "NODES(A/I)", lambda one: "/".join(one.sums(cpus=False).split("/")[:2])
    ),
    "F": _make_field("NODES(A/I/O/T)", lambda one: one.sums(cpus=False)),
    "C": _make_field("CPUS(A/I/O/T)", lambda one: one.sums(cpus=True)),
    "c": _make_field(
        "CPUS", lambda one: _format_minimum(int(node["cpus"]) for node in one.nodes)
    ),
    "m": _make_field(
        "MEMORY",
        lambda one: _format_minimum(
            node["memory_bytes"] // 2**20 for node in one.nodes
        ),
    ),
    "G": _make_field(
        "GRES", lambda one: gres_of(one.nodes[0]) if one.nodes else "(null)"
    ),
    "f": _make_field(
        "AVAIL_FEATURES",
        lambda one: features_of(one.nodes[0]) if one.nodes else "(null)",
    ),
    "b": _make_field(
        "ACTIVE_FEATURES",
        lambda one: features_of(one.nodes[0]) if one.nodes else "(null)",
    ),
    "E": _make_field(
        "REASON", lambda one: (why_of(one.nodes[0]) or _NONE) if one.nodes else _NONE
    ),
    "H": _make_field("TIMESTAMP", lambda one: moment(one.nodes[0]["since"], "Unknown")),
    "u": _make_field("USER", lambda one: "root"),
    "g": _make_field("GROUPS", lambda one: "all"),
    "h": _make_field("OVERSUBS", lambda one: "NO"),
    "r": _make_field("ROOT", lambda one: "no"),
    "s": _make_field("JOB_SIZE", lambda one: "1-infinite"),
    "z": _make_field(
        "S:C:T",
        lambda one: f"{_format_minimum(int(node['cpus']) for node in one.nodes)}:1:1",
    ),
    "d": _make_field("TMP_DISK", lambda one: "0"),
    "w": _make_field("WEIGHT", lambda one: "1"),
}
NAMES: Final = {
    "partition": LETTERS["P"],
    "partitionname": LETTERS["R"],
    "available": LETTERS["a"],
    "time": LETTERS["l"],
    "nodes": LETTERS["D"],
    "statecompact": LETTERS["t"],
    "statelong": LETTERS["T"],
    "nodelist": LETTERS["N"],
    "nodehost": LETTERS["n"],
    "nodeaddr": LETTERS["o"],
    "nodeai": LETTERS["A"],
    "nodeaiot": LETTERS["F"],
    "cpusstate": LETTERS["C"],
    "cpus": LETTERS["c"],
    "memory": LETTERS["m"],
    "gres": LETTERS["G"],
    "features": LETTERS["f"],
    "reason": LETTERS["E"],
    "timestamp": LETTERS["H"],
    "gresused": _make_field(
        "GRES_USED", lambda one: used_of(one.nodes[0]) if one.nodes else "(null)"
    ),
}


def used_of(node: Row) -> str:
    gpus = node["gpus"]
    return f"gpu:{gpus['total'] - gpus['free']:g}" if gpus["total"] else "gpu:0"


def main(words: Sequence[str]) -> int:
    parsed_options = SINFO.read(words, mixed=True)
    if parsed_options.has("help") or parsed_options.has("usage"):
        print(SINFO.usage())
        return 0
    interval_seconds = float(parsed_options.get("iterate") or 0)
    while True:
        _print_nodes(parsed_options, HeadClient())
        if not interval_seconds:
            return 0
        sys.stdout.flush()
        time.sleep(interval_seconds)


def _print_nodes(read: ParsedOptions, head: HeadClient) -> None:
    nodes = [
        node for node in head.ask("GET", "/v1/nodes")["nodes"] if _is_meant(read, node)
    ]
    if read.has("json"):
        print(
            json.dumps(
                {**document([]), "nodes": [record(node) for node in nodes]}, indent=2
            )
        )
        return
    cells = _parse_format(read)
    partitions_asked = (
        (read.get("partition") or "").split(",") if read.has("partition") else None
    )
    queues = partitions(head)
    groups = [
        group
        for name, limit in queues.items()
        if partitions_asked is None or name in partitions_asked
        for group in _group_by_state(read, name, limit, nodes)
    ]
    header = not read.has("noheader")
    if header and read.has("long") and not read.has("format"):
        print(today(SystemClock().wall()))
    for line in columns.table(cells, groups, header=header):
        print(line)


def partitions(head: HeadClient) -> dict[str, str]:
    """Return each queue without child queues, which takes jobs, with the time limit of
    its jobs as text."""
    rows = head.ask("GET", "/v1/queues")["queues"]
    parents = {row["parent"] for row in rows}
    partition_by_name = {
        row["name"]: str(row["form"].get("max_duration") or "infinite")
        for row in rows
        if row["name"] not in parents
    }
    return partition_by_name or {"default": "infinite"}


def _parse_format(read: ParsedOptions) -> list[columns.Cell]:
    if (text := read.get("Format")) is not None:
        return columns.long(text, NAMES)
    usual = DEFAULT
    for name, form in (
        ("list-reasons", REASONS),
        ("summarize", SUMMARY),
        ("long", LONG),
    ):
        usual = form if read.has(name) else usual
    if read.has("Node"):
        usual = NODES_LONG if read.has("long") else NODES
    return columns.percent(
        read.get("format") or os.environ.get("SINFO_FORMAT") or usual, LETTERS
    )


def _is_meant(read: ParsedOptions, node: Row) -> bool:
    states = {
        state_text.lower()
        for state_text in (read.get("states") or "").split(",")
        if state_text
    }
    state = state_of(node)
    node_names = set(expand(read.get("nodes") or "")) if read.has("nodes") else set()
    silent = node["liveness"] != "alive"
    return (
        (not states or bool(states & {state, _COMPACT[state], "all"}))
        and (not node_names or node["id"] in node_names)
        and (not read.has("dead") or silent)
        and (not read.has("responding") or not silent)
        and (
            not read.has("list-reasons")
            or state in ("down", "drained", "draining", "unknown")
        )
    )


def _group_by_state(
    read: ParsedOptions, name: str, limit: str, nodes: Sequence[Row]
) -> list[NodeGroup]:
    """Return the nodes of a partition grouped by state. With --Node each node is a
    group; with --summarize there is one group."""
    title = f"{name}*" if name == "default" else name
    if read.has("summarize"):
        return [NodeGroup(partition=title, nodes=tuple(nodes), limit=limit)]
    alike: dict[object, list[Row]] = {}
    for node in nodes:
        key = (
            node["id"]
            if read.has("Node")
            else (state_of(node), node["liveness"], gres_of(node))
        )
        alike.setdefault(key, []).append(node)
    return [
        NodeGroup(partition=title, nodes=tuple(group_nodes), limit=limit)
        for group_nodes in alike.values()
    ]


def record(node: Row) -> dict[str, Any]:
    """Return a node as an object in the form of sinfo --json."""
    return {
        "name": node["id"],
        "hostname": node["id"],
        "address": node["address"],
        "state": state_of(node),
        "cpus": int(node["cpus"]),
        "real_memory": node["memory_bytes"] // 2**20,
        "gres": gres_of(node).replace("(null)", ""),
        "gres_used": used_of(node),
        "features": features_of(node).replace("(null)", ""),
        "reason": node["why"],
    }
