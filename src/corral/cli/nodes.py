"""The commands node ls, show, cordon, drain, uncordon, clear and label."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.boot.clock import SystemClock
from corral.cli.batch_changes import change_each
from corral.cli.check_table import show_kept
from corral.cli.error_output import Usage
from corral.cli.head_options import Change, Common, declined
from corral.cli.lost_work import agreed_to_lose, jobs_on
from corral.cli.node_faults import cordon_suspects, health_text, show_conditions
from corral.cli.printing import (
    cut,
    print_json,
    say,
    show_pairs,
    show_table,
    state,
    table,
)
from corral.cli.sensors import show_sensors
from corral.domain.units import size_text

if TYPE_CHECKING:
    from rich.text import Text

    from corral.client import Client
    from corral.wire import api
    from corral.wire.node_answers import NodeGpu

_UNLIMITED = "memory and CPU use is measured but not limited: no cgroup is available"
LIMITS = {"pid-namespace": _UNLIMITED, "subreaper": _UNLIMITED}
MOST_REFUSED = 5  # users that are named in addition to the first


def ls(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """List the nodes."""
    with common.client() as client:
        node_views = client.nodes()
    if common.json:
        print_json({"nodes": [node.model_dump(mode="json") for node in node_views]})
        return
    show_nodes(node_views)


def show(node: str, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Show one node, its GPUs, and its latest sensor values.

    Args:
        node: Name of the node.
    """
    with common.client() as client:
        node_detail = client.node(node)
    if common.json:
        print_json(node_detail)
        return
    show_pairs(_facts_of(node_detail))
    show_conditions(node_detail.conditions)
    if node_detail.devices:
        _show_gpus(node_detail.devices)
    show_kept(node_detail.checks, SystemClock().wall())
    if node_detail.sample is not None:
        show_sensors(node_detail.sample)


def _facts_of(node: "api.NodeDetail") -> list[tuple[str, "str | Text | None"]]:
    return [
        ("node", node.id),
        ("state", state(node.liveness)),
        ("why", node.why),
        ("work", _work_status_text(node)),
        ("health", health_text(node)),
        ("address", node.address),
        ("CPUs", f"{node.cpus:g} for jobs"),
        ("memory", f"{size_text(node.memory_bytes)} for jobs"),
        ("ranks in", node.containment),
        ("limits", LIMITS.get(node.containment, "")),
        (
            "account",
            f"{node.shared_account}, for the ranks of all users"
            * bool(node.shared_account),
        ),
        ("refuses", refused_text(node.refused_users)),
        (
            "own disk",
            "yes" if node.private_root else "no: its ranks see the machine's files",
        ),
        ("shared", ", ".join(node.shared)),
        ("labels", labels_text(node.labels)),
        ("jobs", ", ".join(node.jobs)),
        ("lost jobs", ", ".join(node.lost_jobs)),
        (
            "reserved",
            f"for {exclusive_job} alone (exclusive)"
            if (exclusive_job := node.held_whole_by)
            else "",
        ),
        ("others use", _taken_text(node)),
    ]


def _show_gpus(gpus: "Sequence[NodeGpu]") -> None:
    rows = table("GPU", "TYPE", "MEMORY", "JOBS", "UUID", right=("GPU", "MEMORY"))
    for gpu in gpus:
        kind = f"{gpu.type} (pretend)" if gpu.pretend else gpu.type
        kind += f", {gpu.slices} slices" if gpu.slices else ""
        gpu_holders = [*gpu.jobs, *["(others)"] * gpu.taken]
        rows.add_row(
            str(gpu.index),
            kind,
            size_text(gpu.memory_bytes) if gpu.memory_bytes else "unknown",
            ", ".join(gpu_holders),
            gpu.uuid,
        )
    say()
    show_table(rows)


def refused_text(users: Mapping[str, str]) -> str:
    """Return text about the users whose ranks the node refuses to run: the first user
    with the reason, then the names of the others. "" if there are none."""
    if not users:
        return ""
    (first_user, refusal_reason), *other_refusals = users.items()
    names = [user for user, _ in other_refusals]
    remainder_text = (
        f" and {len(names) - MOST_REFUSED} more (for all, add --json)"
        if len(names) > MOST_REFUSED
        else ""
    )
    also = (
        f"; also refused: {', '.join(names[:MOST_REFUSED])}{remainder_text}"
        if names
        else ""
    )
    return f"{first_user}: {refusal_reason}{also}"


def cordon(
    *nodes: str,
    suspects: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    common: Change = Change(),  # noqa: B008 - frozen
) -> int:
    """Stop giving nodes new work; running jobs continue.

    Args:
        nodes: Names of the nodes.
        suspects: Cordon all suspect nodes: nodes with faults that Corral did not cordon
            itself, because of its limit of automatic cordons or --health observe.
    """
    if suspects:
        return cordon_suspects(nodes, common)
    return _change_nodes(
        nodes, common, "cordon", lambda client, node: client.cordon(node)
    )


def drain(*nodes: str, common: Change = Change()) -> int:  # noqa: B008 - frozen
    """Stop giving nodes new work, and move running jobs.

    Args:
        nodes: Names of the nodes.
    """
    return _change_nodes(
        nodes, common, "drain", lambda client, node: client.drain(node), moves_jobs=True
    )


def uncordon(*nodes: str, common: Change = Change()) -> int:  # noqa: B008 - frozen
    """Give nodes new work again.

    Args:
        nodes: Names of the nodes.
    """
    return _change_nodes(
        nodes, common, "uncordon", lambda client, node: client.uncordon(node)
    )


def clear(*nodes: str, common: Change = Change()) -> int:  # noqa: B008 - frozen
    """Mark the faults of nodes as repaired; they take work again unless a person
    cordoned them.

    Args:
        nodes: Names of the nodes.
    """
    return _change_nodes(
        nodes, common, "clear", lambda client, node: client.clear_node(node)
    )


def label(node: str, /, *labels: str, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Set and remove labels of a node; waiting jobs use them at once.

    Running jobs continue. Labels stay until they are set again, whatever the node
    declares.

    Args:
        node: Name of the node.
        labels: zone=a sets the label zone to a, zone- removes the label zone; may be
            repeated.
    """
    from corral.wire.node_labels import read_labels

    if not labels:
        raise Usage(
            f"no label for node {node} was given",
            hint=f"run, for example: corral node label {node} zone=a",
        )
    label_values = read_labels(labels)
    if not common.agreed(f"change labels of node {node}: {' '.join(labels)}?"):
        raise declined()
    with common.client() as client:
        labeled_node = client.label(node, label_values)
    if common.json:
        print_json(labeled_node)
        return
    say(f"{labeled_node.id}: {labels_text(labeled_node.labels) or 'no labels'}")


def _change_nodes(
    nodes: tuple[str, ...],
    common: Change,
    verb: str,
    call: "Callable[[Client, str], api.NodeDetail]",
    *,
    moves_jobs: bool = False,
) -> int:
    """Apply the change `call` to each named node, after asking the user, and return the
    exit code. `verb`: name of the command. `moves_jobs`: the jobs on the nodes are
    moved, and the question lists what they lose.

    Raises: Usage, Conflict.
    """
    if not nodes:
        raise Usage(
            f"the name of a node is missing after: corral node {verb}",
            hint=f"run: corral node {verb} NODE; for the names, run: corral node ls",
        )
    with common.client() as client:
        question = f"{verb} {', '.join(nodes)}?"
        if moves_jobs:
            jobs = jobs_on(client, nodes) if common.asks_before_loss else ()
            agrees = agreed_to_lose(client, jobs, question, common)
        else:
            agrees = common.agreed(question)
        if not agrees:
            raise declined()
        node_details, code = change_each(
            nodes,
            lambda node: [node],
            lambda node: call(client, node),
            lambda node: say(f"{node.id}: {_work_status_text(node)}"),
            as_json=common.json,
        )
    if common.json and node_details:
        document = (
            node_details[0].model_dump(mode="json") if len(node_details) == 1 else None
        )
        print_json(
            document
            or {"nodes": [node.model_dump(mode="json") for node in node_details]}
        )
    return code


def _work_status_text(node: "api.NodeView") -> str:
    """Return whether the node takes work, and if not, why."""
    if node.liveness != "alive":
        return f"takes no work: the node is {node.liveness}"
    if node.draining or node.cordoned:
        cause_text = ", because of a fault" if node.cordoned_by else ""
        return f"{'draining' if node.draining else 'cordoned'}{cause_text}"
    return f"takes no work now: {node.closed}" if node.closed else "takes work"


def show_nodes(nodes: "list[api.NodeView]") -> None:
    labelled = any(node.labels for node in nodes)
    columns = ("NODE", "STATE", "GPUS", "FREE", "JOBS", *["LABELS"] * labelled, "NOTE")
    rows = table(*columns, right=("GPUS", "FREE"))
    for node in nodes:
        types = "/".join(node.gpus.types)
        rows.add_row(
            node.id,
            state(_state_word(node)),
            f"{node.gpus.total} {types}".strip() + " (pretend)" * node.gpus.pretend,
            f"{node.gpus.free:g}",
            str(len(node.jobs)),
            *[labels_text(node.labels)] * labelled,
            cut(_unavailable_reason(node)),
        )
    show_table(rows)


def _state_word(node: "api.NodeView") -> str:
    if node.draining or node.cordoned:
        return "draining" if node.draining else "cordoned"
    return "closed" if node.closed and node.liveness == "alive" else node.liveness


def _unavailable_reason(node: "api.NodeView") -> str:
    """Return why the node takes no work, such as a fault, an exclusive job, or programs
    outside Corral."""
    if node.liveness != "alive":
        return node.why
    if node.health:
        return health_text(node)
    if node.held_whole_by:
        return f"reserved for {node.held_whole_by} alone (exclusive)"
    return node.closed or (
        f"programs outside Corral use {taken_text}"
        if (taken_text := _taken_text(node))
        else ""
    )


def _taken_text(node: "api.NodeView") -> str:
    """Return the resources that programs outside Corral use, for example: 6 GPUs, 12
    CPUs, 64 GB. "" if they use none."""
    gpus, cpus, memory_bytes = node.gpus.taken, node.taken_cpus, node.taken_memory_bytes
    parts_taken = [f"{gpus} GPU{'s' * (gpus > 1)}"] if gpus else []
    parts_taken += [f"{cpus:g} CPU{'s' * (cpus > 1)}"] if cpus else []
    return ", ".join(parts_taken + ([size_text(memory_bytes)] if memory_bytes else []))


def labels_text(labels: Mapping[str, str]) -> str:
    return " ".join(f"{label}={value}" for label, value in sorted(labels.items()))
