"""Resources from the options of a Slurm job: nodes, tasks, cores, GPUs and bytes. No
I/O."""

import re
from dataclasses import dataclass

from corral.wire.slurm import value_forms
from corral.wire.slurm.hostlist import expand
from corral.wire.slurm.options import ParsedOptions
from corral.wire.slurm.slurm_errors import SlurmRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmShape:
    """Resources of a Slurm job on each of `nodes` nodes. `fewest`: the lowest number of
    nodes on which it can run. `task_gpus` 0: no number of GPUs was requested for each
    task."""

    nodes: int
    fewest: int
    tasks: int
    tasks_per_node: int
    cpus_per_task: int
    cpus_per_node: int
    gpu_type: str | None
    gpus_per_node: int
    task_gpus: int
    memory_bytes: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpus:
    type: str | None = None
    per_node: int = 0
    per_task: int = 0
    in_all: int = 0


def shape_of(read: ParsedOptions) -> SlurmShape:
    """Return the resources that the options request.

    Raises: SlurmRefusal for contradictory or invalid options.
    """
    gpus = _read_gpu_counts(read)
    fewest, nodes, tasks, tasks_per_node, notes = _nodes_and_tasks(read, gpus)
    per_node = gpus.per_node or gpus.per_task * tasks_per_node
    if gpus.in_all and not per_node:
        if gpus.in_all % nodes:
            raise SlurmRefusal(
                f"{gpus.in_all} GPUs cannot be divided into equal parts over {nodes} nodes",
                hint="use --gpus-per-node=N instead of --gpus",
            )
        per_node = gpus.in_all // nodes
    cpus = _read_count(read, "cpus-per-task")
    cpus_per_node = tasks_per_node * (cpus or 1)
    if (per_gpu := _read_count(read, "cpus-per-gpu")) and per_node:
        cpus_per_node = per_gpu * per_node
        cpus = max(1, cpus_per_node // tasks_per_node)
    return SlurmShape(
        nodes=nodes,
        fewest=fewest,
        tasks=tasks,
        tasks_per_node=tasks_per_node,
        cpus_per_task=cpus or 1,
        cpus_per_node=cpus_per_node,
        gpu_type=gpus.type,
        gpus_per_node=per_node,
        task_gpus=gpus.per_task,
        memory_bytes=_memory_per_node(read, cpus_per_node, per_node),
        notes=notes,
    )


def _read_count(read: ParsedOptions, name: str) -> int:
    text = read.get(name)
    return 0 if text is None else value_forms.count(text, f"--{name}")


def _nodes_and_tasks(
    read: ParsedOptions, gpus: _Gpus
) -> tuple[int, int, int, int, tuple[str, ...]]:
    """Return (fewest nodes, nodes, tasks, tasks of a node, notes for the user)."""
    fewest, nodes = (
        value_forms.nodes(read.get("nodes") or "") if read.has("nodes") else (0, 0)
    )
    tasks, tasks_per_node = (
        _read_count(read, "ntasks"),
        _read_count(read, "ntasks-per-node"),
    )
    if (per_gpu := _read_count(read, "ntasks-per-gpu")) and not tasks:
        tasks_per_node = tasks_per_node or per_gpu * gpus.per_node
        tasks = tasks or per_gpu * gpus.in_all
    notes: tuple[str, ...] = ()
    if not nodes:
        listed = _count_listed_nodes(read)
        nodes = max(
            1, -(-tasks // tasks_per_node) if tasks_per_node and tasks else 1, listed
        )
        fewest = nodes
    if tasks and tasks < nodes:
        notes = (
            f"Warning: can't run {tasks} processes on {nodes} nodes, setting nnodes to {tasks}",
        )
        nodes, fewest = tasks, min(fewest, tasks)
    tasks_per_node = tasks_per_node or max(1, -(-tasks // nodes))
    if tasks > tasks_per_node * nodes:
        raise SlurmRefusal(
            f"{tasks} tasks do not fit on {nodes} nodes with {tasks_per_node} each",
            hint="request more nodes, or more tasks with --ntasks-per-node",
        )
    return fewest, nodes, tasks or tasks_per_node * nodes, tasks_per_node, notes


def _count_listed_nodes(read: ParsedOptions) -> int:
    text = read.get("nodelist")
    try:
        return len(expand(text)) if text else 1
    except ValueError as error:
        raise SlurmRefusal(f"Invalid node list: {error}") from None


def _read_gpu_counts(read: ParsedOptions) -> _Gpus:
    type_in_gres, in_gres = _parse_gres(read.get("gres"))
    per_node = value_forms.typed_count(
        read.get("gpus-per-node") or "0", "--gpus-per-node"
    )
    per_task = value_forms.typed_count(
        read.get("gpus-per-task") or "0", "--gpus-per-task"
    )
    in_all = value_forms.typed_count(read.get("gpus") or "0", "--gpus")
    types = {
        gpu_type
        for gpu_type in (type_in_gres, per_node[0], per_task[0], in_all[0])
        if gpu_type
    }
    if len(types) > 1:
        raise SlurmRefusal(
            f"GPUs of several types are not allowed: {', '.join(sorted(types))}"
        )
    return _Gpus(
        type=next(iter(types), None),
        per_node=per_node[1] or in_gres,
        per_task=per_task[1],
        in_all=in_all[1],
    )


def _parse_gres(text: str | None) -> tuple[str | None, int]:
    """Parse a --gres option. Return (type, GPUs of a node)."""
    kind: str | None = None
    number = 0
    for gres_entry in (text or "").split(","):
        name, _, rest = gres_entry.strip().removeprefix("gres/").partition(":")
        if name in ("", "none"):
            continue
        if name != "gpu":
            raise SlurmRefusal(
                f"Invalid generic resource (gres) specification: {gres_entry}",
                hint="use --gres=gpu:N; other generic resources are not supported",
            )
        rest = re.sub(r"\(.*\)$", "", rest)
        one_kind, typed_count = (
            value_forms.typed_count(rest, "--gres") if rest else (None, 1)
        )
        kind, number = one_kind or kind, number + typed_count
    return kind, number


def _memory_per_node(read: ParsedOptions, cpus: int, gpus: int) -> int:
    if (node_memory := read.get("mem")) is not None:
        return value_forms.size_bytes(node_memory)
    if (memory_per_unit := read.get("mem-per-cpu")) is not None:
        return value_forms.size_bytes(memory_per_unit, "--mem-per-cpu") * cpus
    if (memory_per_unit := read.get("mem-per-gpu")) is not None:
        return value_forms.size_bytes(memory_per_unit, "--mem-per-gpu") * gpus
    return 0
