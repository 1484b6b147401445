"""Text lines of the metrics of GPUs and nodes. They are formatted without a library,
because there are many.

The labels are those of NVIDIA's DCGM exporter. The labels `job`, `user` and `queue` are
added; their values are joined by commas where several jobs share a GPU.
"""

from collections.abc import Callable, Iterator, Mapping

from corral.api.job_visibility import HIDDEN
from corral.api.metrics.device_series import GPUS, NODES, XIDS, escaped, shown
from corral.catalog.fault_codes import rule_of
from corral.domain.ids import NodeId
from corral.domain.job import Job
from corral.domain.node import Liveness, Node
from corral.domain.node_signal import SignalKind
from corral.domain.telemetry import GpuSample, NodeSample
from corral.domain.world import World


def holders(world: World, seen: Callable[[Job], bool]) -> dict[tuple[NodeId, int], str]:
    """Return, for each (node, GPU index), the labels of the jobs that hold the GPU:
    job, user and queue. `seen` returns whether the caller may see a job; of a hidden
    job, only the queue is shown."""
    holder_rows: dict[tuple[NodeId, int], list[tuple[str, str, str]]] = {}
    for allocation in world.allocations.values():
        job = world.jobs.get(allocation.job)
        if job is not None:
            names = (str(job.id), str(job.owner)) if seen(job) else (HIDDEN, HIDDEN)
            holder_labels = (*names, str(job.spec.queue))
            for index in allocation.seat.gpus:
                holder_rows.setdefault((allocation.seat.node, index), []).append(
                    holder_labels
                )
    return {key: _labels_of(label_rows) for key, label_rows in holder_rows.items()}


def _labels_of(who: list[tuple[str, str, str]]) -> str:
    job, user, queue = (
        ",".join(dict.fromkeys(label_values)) for label_values in zip(*who, strict=True)
    )
    return f',job="{escaped(job)}",user="{escaped(user)}",queue="{escaped(queue)}"'


def heard(
    world: World, samples: Mapping[NodeId, NodeSample]
) -> dict[NodeId, NodeSample]:
    """Return the newest samples of living nodes. The samples of nodes without
    heartbeats are left out, because they are outdated."""
    alive = (id for id, node in world.nodes.items() if node.liveness == Liveness.ALIVE)
    return {id: samples[id] for id in sorted(alive) if id in samples}


def gpu_families(
    world: World,
    samples: Mapping[NodeId, NodeSample],
    *,
    counters: bool,
    seen: Callable[[Job], bool] = lambda job: True,
) -> Iterator[str]:
    """Yield the text of each metric family of GPUs. `counters` is true if the format
    accepts counters whose names do not end in `_total`. OpenMetrics does not, so there
    they have the type `unknown`."""
    labelled_gpus = _label_gpus(world, samples, seen)
    labelled = [(f"{{{labels}}} ", gpu) for _, labels, gpu in labelled_gpus]
    for series in GPUS:
        of, name = series.of, series.name
        lines = [
            f"{name}{labels}{shown(value)}\n"
            for labels, gpu in labelled
            if (value := of(gpu)) is not None
        ]
        if lines:
            kind = series.kind if counters or series.kind != "counter" else "unknown"
            yield f"# HELP {name} {series.help}\n# TYPE {name} {kind}\n{''.join(lines)}"
    lines = [
        _xid_line(node, labels, gpu)
        for node, labels, gpu in labelled_gpus
        if _has_xids(gpu)
    ]
    if lines:
        about = (
            "Code of the last XID error since the last repair or boot; 0 without one."
        )
        yield f"# HELP {XIDS} {about}\n# TYPE {XIDS} gauge\n{''.join(lines)}"


def _label_gpus(
    world: World, samples: Mapping[NodeId, NodeSample], seen: Callable[[Job], bool]
) -> list[tuple[Node, str, GpuSample]]:
    """Return all GPUs with known samples: the node, the GPU's labels without braces,
    and its sample."""
    nobody, holder_names = ',job="",user="",queue=""', holders(world, seen)
    return [
        (
            world.nodes[node],
            f'gpu="{gpu.index}",UUID="{escaped(gpu.uuid)}",device="nvidia{gpu.index}",'
            f'modelName="{escaped(gpu.type)}",Hostname="{escaped(node)}"'
            f"{holder_names.get((node, gpu.index), nobody)}",
            gpu,
        )
        for node, sample in heard(world, samples).items()
        for gpu in sample.gpus
    ]


def _has_xids(gpu: GpuSample) -> bool:
    """Return whether the GPU reports XID errors. AMD's driver does not."""
    return not gpu.uuid.startswith("amd-")


def _xid_line(node: Node, labels: str, gpu: GpuSample) -> str:
    """Return the metric line of the GPU's last XID error; its value is 0 without an
    error. As in NVIDIA's exporter, the code and its meaning are labels, too."""
    of_gpu = [
        condition
        for condition in node.conditions
        if condition.is_live
        and condition.kind == SignalKind.XID
        and condition.unit in (gpu.uuid, gpu.index)
    ]
    code = (max(of_gpu, key=lambda one: one.last).code or 0) if of_gpu else 0
    title = rule_of(SignalKind.XID, code).title if code else "No Error"
    return f'{XIDS}{{{labels},err_code="{code}",err_msg="{escaped(title)}"}} {code}\n'


def node_families(world: World, samples: Mapping[NodeId, NodeSample]) -> Iterator[str]:
    """Yield the text of each metric family of nodes."""
    node_samples_by_node = heard(world, samples)
    for series in NODES:
        lines = [
            f'{series.name}{{node="{escaped(node)}"{labels}}} {shown(value)}\n'
            for node, sample in node_samples_by_node.items()
            for labels, value in series.of(sample)
            if value is not None
        ]
        if lines:
            yield (
                f"# HELP {series.name} {series.help}\n# TYPE {series.name} gauge\n{''.join(lines)}"
            )
