"""Communication of a training step, by kind of parallelism."""

from dataclasses import dataclass
from typing import Final

from corral.perf.collectives import Collective, collective_seconds, handed_on_seconds
from corral.perf.expert_dispatch import Dispatch, copies
from corral.perf.layout import Shard, TrainLayout, TrainStep
from corral.perf.software import Software
from corral.perf.topology import GpuGroup, Wires

_ACTIVATION_BYTES: Final = 2.0  # of a number that goes from GPU to GPU
_WEIGHT_BYTES: Final = 2.0


def group(size: int, stride: int, gpus: int, wires: Wires) -> GpuGroup:
    """Return the group of `size` GPUs whose ranks are `stride` apart, in Megatron's
    order of ranks: tensor, context, data, pipeline. The nearest of these GPUs share a
    domain.

    Raises: ValueError if size or stride is below 1.
    """
    domain = min(wires.domain_gpus, gpus)
    near = max(min(domain // stride, size), 1)
    while size % near:
        near -= 1
    return GpuGroup(size=size, per_domain=near, beside=max(domain // near, 1))


def tensor_seconds(step: TrainStep, layout: TrainLayout, wires: Wires) -> float:
    """Return the time of one layer in one direction: two all-reduces of a micro batch,
    or with sequence parallelism two all-gathers and two reduce-scatters, which move the
    same number of bytes.

    Source: arXiv:1909.08053, section 3; arXiv:2205.05198, section 4.2.
    """
    if layout.tensor == 1:
        return 0.0
    gpu_group = group(layout.tensor, 1, layout.gpus, wires)
    size = _micro_bytes(step, layout)
    if layout.sequence_parallel:
        collectives = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
        return 2 * sum(
            collective_seconds(collective, size, gpu_group, wires)
            for collective in collectives
        )
    return 2 * collective_seconds(Collective.ALL_REDUCE, size, gpu_group, wires)


def context_seconds(step: TrainStep, layout: TrainLayout, wires: Wires) -> float:
    """Return the time of one layer forward: keys and values are passed around the ring
    of context-parallel GPUs.

    Source: arXiv:2310.01889, section 3. In the backward pass their gradients are passed
    around too.
    """
    if layout.context == 1:
        return 0.0
    model = step.model
    numbers = 2 * max(model.kv_heads // layout.tensor, 1) * model.head_dim
    tokens = layout.micro_batch * step.sequence / layout.context
    gpu_group = group(layout.context, layout.tensor, layout.gpus, wires)
    pair = GpuGroup(
        size=2, per_domain=min(gpu_group.per_domain, 2), beside=gpu_group.beside
    )
    if gpu_group.domains > 1:
        pair = GpuGroup(
            size=2, per_domain=1, beside=min(wires.domain_gpus, layout.gpus)
        )
    size = tokens * numbers * _ACTIVATION_BYTES
    return (layout.context - 1) * collective_seconds(
        Collective.SEND_RECV, size, pair, wires
    )


def expert_seconds(
    step: TrainStep, layout: TrainLayout, way: Dispatch, wires: Wires
) -> float:
    """Return the time of one layer of experts in one direction. Tokens are sent to
    their experts and back, while other micro batches are computed. `way`: how the
    library dispatches tokens.

    Source: arXiv:2006.16668, section 3.2: two all-to-alls; arXiv:2412.19437, section
    3.2.2: a token crosses to each node once.
    """
    experts = step.model.experts
    if experts is None or layout.expert == 1:
        return 0.0
    split = layout.tensor if layout.sequence_parallel else 1
    sent_bytes = _micro_bytes(step, layout) / split
    gpu_group = group(layout.expert, layout.expert_tensor, layout.gpus, wires)
    if not way.once:
        size = sent_bytes * experts.per_token
        return (
            2
            * (1 - way.hidden)
            * collective_seconds(Collective.ALL_TO_ALL, size, gpu_group, wires)
        )
    token_copies = copies(experts, gpu_group)
    pass_seconds = handed_on_seconds(
        sent_bytes * token_copies.inside,
        sent_bytes * token_copies.across,
        gpu_group,
        wires,
        inside_share=way.inside,
        across_share=way.across,
    )
    return 2 * (1 - way.hidden) * pass_seconds


def pipeline_seconds(
    step: TrainStep, layout: TrainLayout, software: Software, wires: Wires
) -> float:
    """Return the time of one micro batch from one stage to the next, in one
    direction."""
    if layout.pipeline == 1:
        return 0.0
    domain = min(wires.domain_gpus, layout.gpus)
    near = 2 if layout.gpus <= wires.domain_gpus else 1
    shares = layout.sequence_parallel or software.scatters
    size = _micro_bytes(step, layout) / (layout.tensor if shares else 1)
    pair = GpuGroup(size=2, per_domain=near, beside=1 if near == 2 else domain)
    return collective_seconds(Collective.SEND_RECV, size, pair, wires)


def _micro_bytes(step: TrainStep, layout: TrainLayout) -> float:
    tokens = layout.micro_batch * step.sequence / layout.context
    return tokens * step.model.hidden * _ACTIVATION_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Seconds of data-parallel communication that does not overlap with other work:
    `reduce` for gradients, `gather` for weights."""

    reduce: float
    gather: float


def gradients_seconds(
    parameters: float,
    layout: TrainLayout,
    shard: Shard,
    software: Software,
    wires: Wires,
) -> Gradients:
    """Return the time of data-parallel communication for `parameters`, the parameters
    of one GPU. Gradients are reduced over the GPUs with the same parameters. Gradients
    that are sharded within each replica are then reduced over the replicas.

    Source: arXiv:1910.02054, section 7; arXiv:2304.11277, section 3.2.2, for the
    replicas.
    """
    size = layout.data * layout.context
    if size == 1:
        return Gradients(reduce=0.0, gather=0.0)
    gradient_bytes = parameters * software.gradient_bytes
    if shard is Shard.NONE:
        gpu_group = group(size, layout.tensor, layout.gpus, wires)
        return Gradients(
            reduce=collective_seconds(
                Collective.ALL_REDUCE, gradient_bytes, gpu_group, wires
            ),
            gather=0.0,
        )
    size //= layout.replicas
    gpu_group = group(size, layout.tensor, layout.gpus, wires)
    reduce = collective_seconds(
        Collective.REDUCE_SCATTER, gradient_bytes, gpu_group, wires
    )
    if layout.replicas > 1:
        replica_group = group(layout.replicas, layout.tensor * size, layout.gpus, wires)
        reduce += collective_seconds(
            Collective.ALL_REDUCE, gradient_bytes / size, replica_group, wires
        )
    gathered = parameters * _WEIGHT_BYTES
    return Gradients(
        reduce=reduce,
        gather=collective_seconds(Collective.ALL_GATHER, gathered, gpu_group, wires),
    )
