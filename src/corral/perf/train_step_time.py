"""Duration in seconds of one training step, by kind of work."""

from dataclasses import dataclass, fields
from math import log2
from typing import Final

from corral.catalog.devices import Device
from corral.perf.communication import (
    context_seconds,
    expert_seconds,
    gradients_seconds,
    pipeline_seconds,
    tensor_seconds,
)
from corral.perf.expert_dispatch import dispatch
from corral.perf.layer_time import Pass, ends_seconds, layer_passes, share
from corral.perf.layout import Recompute, Shard, TrainLayout, TrainStep
from corral.perf.matmul import streamed_seconds
from corral.perf.sharding import busiest_layers
from corral.perf.software import Software, software, sustained
from corral.perf.topology import Wires

_JOIN: Final = 4.2  # launching runs ahead of computing: the norm that joins the two
# of a number of attention: what was found and what is new, in 32 bits
_MERGE_BYTES: Final = 16.0
_CONTEXT_BACKWARD: Final = 2.0  # keys and values, and their gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds on the GPU that is busy longest; the parts add up to `seconds`.

    `matmul`, `attention`, `elementwise`: computation, forward and backward.
    `recompute`: repeated forward passes. `host`: the GPU waits for Python, the driver
    and its data. `tensor` to `data`: communication that does not overlap with
    computation. `bubble`: the pipeline fills and drains. `skew`: all wait for the
    slowest GPU.
    """

    matmul: float
    attention: float
    elementwise: float
    recompute: float
    host: float
    tensor: float
    context: float
    expert: float
    pipeline: float
    data: float
    bubble: float
    optimizer: float
    skew: float

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, float]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Direction:
    """Seconds of one layer in one direction (forward or backward): the GPU's
    computation, its communication, and host time."""

    own: Pass
    tensor: float
    context: float
    expert: float
    host: float

    @property
    def seconds(self) -> float:
        waited = self.tensor + self.context + self.expert
        return self.own.seconds + waited + self.host


def step_time(
    step: TrainStep,
    layout: TrainLayout,
    device: Device,
    wires: Wires,
    *,
    by: Software | None = None,
) -> StepTime:
    """Return the seconds of one optimizer step of a 1F1B pipeline, plain or
    interleaved, with the overlap of communication of the library `by`, or of the
    default one.

    Raises: ValueError if the batch cannot be divided evenly over the layout.
    Source: arXiv:2104.04473, section 2.2 (bubble); arXiv:2205.05198 (layers);
    constants: catalog/data/software.csv and sustained.csv; error: validation/README.md.
    """
    by = by or software()
    count = step.micro_batches(layout)
    forward, backward, rerun = _mean_layer_time(step, layout, device, wires, by)
    layers = step.model.layers / layout.pipeline
    pieces = layout.interleave
    piece = by.host_piece * sustained(device.architecture).host
    head, embedding = ends_seconds(step, layout, device, by)
    layer_seconds = forward.seconds + backward.seconds + rerun
    slot = _busiest_stage_seconds(
        step, layout, layer_seconds, head.seconds, embedding.seconds
    )
    mean = layers * layer_seconds + (head.seconds + embedding.seconds) / layout.pipeline
    send_seconds = _stage_wait_seconds(step, layout, by, wires)
    data, optimizer = _update_seconds(
        step, layout, device, wires, by, forward, backward, rerun
    )
    bubble = (layout.pipeline - 1) * (mean / pieces + send_seconds / pieces + piece)
    busy = (
        slot / (layers * layer_seconds + head.seconds + embedding.seconds)
        if slot
        else 1.0
    )
    layer_runs = count * layers * busy
    end_runs = count * busy
    inner = StepTime(
        matmul=layer_runs * (forward.own.matmul + backward.own.matmul)
        + end_runs * head.matmul,
        attention=layer_runs * (forward.own.attention + backward.own.attention),
        elementwise=layer_runs * (forward.own.elementwise + backward.own.elementwise)
        + end_runs * (head.elementwise + embedding.elementwise),
        recompute=layer_runs * rerun,
        host=layer_runs * (forward.host + backward.host)
        + count * (pieces * piece + by.loader),
        tensor=layer_runs * (forward.tensor + backward.tensor),
        context=layer_runs * (forward.context + backward.context),
        expert=layer_runs * (forward.expert + backward.expert),
        pipeline=count * send_seconds,
        data=data,
        bubble=bubble,
        optimizer=optimizer,
        skew=0.0,
    )
    return _with_skew(inner, layout, wires, device)


def _busiest_stage_seconds(
    step: TrainStep, layout: TrainLayout, each: float, head: float, embedding: float
) -> float:
    """Return the seconds of a micro batch on the busiest stage. `each`: seconds of one
    layer."""
    first_layers, max_layers, last_layers = busiest_layers(step.model, layout)
    if layout.pipeline == 1:
        return last_layers * each + head + embedding
    return max(
        first_layers * each + embedding, max_layers * each, last_layers * each + head
    )


def _with_skew(
    inner: StepTime, layout: TrainLayout, wires: Wires, device: Device
) -> StepTime:
    doublings = max(log2(layout.gpus / wires.domain_gpus), 0.0)
    seconds_by_part = inner.parts
    seconds_by_part["skew"] = (
        inner.seconds * doublings * sustained(device.architecture).skew
    )
    return StepTime(**seconds_by_part)


def _mean_layer_time(
    step: TrainStep, layout: TrainLayout, device: Device, wires: Wires, by: Software
) -> tuple[_Direction, _Direction, float]:
    """Return three results for the average layer: its forward time, its backward time,
    and the seconds of its recomputation."""
    model = step.model
    dense = layer_passes(step, layout, device, by, has_experts=False)
    sparse = model.moe_layers / model.layers
    forward_pass, backward_pass = dense
    if sparse:
        with_experts = layer_passes(step, layout, device, by, has_experts=True)
        forward_pass = _mix_passes(dense[0], with_experts[0], sparse)
        backward_pass = _mix_passes(dense[1], with_experts[1], sparse)
    tensor = tensor_seconds(step, layout, wires) * (1 - by.tensor_hidden)
    ring = context_seconds(step, layout, wires)
    merged = _context_merge_seconds(step, layout, device)
    expert = sparse * expert_seconds(step, layout, dispatch(by.name), wires)
    launch = (by.host_tensor if layout.tensor > 1 else 0.0) + sparse * by.host_expert
    slow = sustained(device.architecture).host
    forward = _direction(
        forward_pass,
        tensor=tensor,
        context=max(ring - forward_pass.attention, 0.0) + merged,
        expert=expert,
        launch=slow * (by.host_forward + launch),
    )
    backward = _direction(
        backward_pass,
        tensor=tensor,
        context=max(_CONTEXT_BACKWARD * ring - backward_pass.attention, 0.0)
        + _CONTEXT_BACKWARD * merged,
        expert=expert,
        launch=slow * (by.host_backward + launch),
    )
    recompute_seconds = 0.0
    if layout.recompute is Recompute.FULL:
        recompute_seconds = forward.seconds
    elif layout.recompute is Recompute.SELECTIVE:
        recompute_seconds = by.selective * (
            forward_pass.matmul + forward_pass.elementwise
        )
        recompute_seconds += 0.0 if step.has_flash else forward_pass.attention
    return forward, backward, recompute_seconds


def _context_merge_seconds(
    step: TrainStep, layout: TrainLayout, device: Device
) -> float:
    """Return the forward seconds to add up the partial results of attention after each
    step of the ring (context parallelism)."""
    if layout.context == 1:
        return 0.0
    own_share = share(step, layout)
    numbers = float(own_share.tokens) * own_share.heads * step.model.head_dim
    return layout.context * streamed_seconds(numbers * _MERGE_BYTES, device)


def _mix_passes(one: Pass, other: Pass, share: float) -> Pass:
    return Pass(
        matmul=one.matmul * (1 - share) + other.matmul * share,
        attention=one.attention * (1 - share) + other.attention * share,
        elementwise=one.elementwise * (1 - share) + other.elementwise * share,
    )


def _direction(
    own: Pass, *, tensor: float, context: float, expert: float, launch: float
) -> _Direction:
    gpu = own.seconds + tensor + context + expert
    joined: float = (gpu**_JOIN + launch**_JOIN) ** (1 / _JOIN)
    return _Direction(
        own=own, tensor=tensor, context=context, expert=expert, host=joined - gpu
    )


def _stage_wait_seconds(
    step: TrainStep, layout: TrainLayout, by: Software, wires: Wires
) -> float:
    """Return the seconds per micro batch for which a pipeline stage waits for data from
    the neighbouring stages."""
    sent_seconds = 2 * pipeline_seconds(step, layout, by, wires)
    if layout.interleave == 1:
        return sent_seconds
    return sent_seconds * layout.interleave * (1 - by.pipeline_hidden)


def _update_seconds(
    step: TrainStep,
    layout: TrainLayout,
    device: Device,
    wires: Wires,
    by: Software,
    forward: _Direction,
    backward: _Direction,
    again: float,
) -> tuple[float, float]:
    """Return two times in seconds: data-parallel communication that does not overlap
    with computation, and the optimizer's update. `again` is the time of recomputation.
    """
    layers = step.model.layers / layout.pipeline
    inside, end_parameters = _parameters(step, layout)
    own_parameters = inside * layers + end_parameters
    sharers = layout.data * layout.context
    state = step.state
    trained = own_parameters if state.gradient else own_parameters * _ADAPTER_SHARE
    updated = trained / (
        sharers // layout.replicas if layout.shard is not Shard.NONE else 1
    )
    moved = updated * (state.gradient + 2 * state.optimizer + state.weight)
    optimizer = streamed_seconds(moved, device)
    optimizer += by.step * sustained(device.architecture).host
    if sharers == 1:
        return 0.0, optimizer
    if layout.shard is Shard.PARAMETERS:
        count = step.micro_batches(layout)
        layer_exchange = gradients_seconds(inside, layout, layout.shard, by, wires)
        reduced = layer_exchange.reduce if state.gradient else 0.0
        computing = backward.seconds + again
        late = max(layer_exchange.gather - forward.seconds, 0.0)
        late += max(layer_exchange.gather + reduced - computing, 0.0)
        beside = by.slowdown * (2 * layer_exchange.gather + reduced)
        return count * layers * (
            late + beside
        ) + layer_exchange.gather + reduced, optimizer
    talk = gradients_seconds(trained, layout, layout.shard, by, wires)
    if not by.data_hidden:
        return talk.reduce + talk.gather, optimizer
    exchange_seconds = talk.reduce + talk.gather
    late = max(talk.reduce - by.data_hidden * layers * backward.seconds, 0.0)
    late += max(talk.gather - by.data_hidden * layers * forward.seconds, 0.0)
    return late + by.slowdown * exchange_seconds + exchange_seconds / max(
        layers, 1.0
    ), optimizer


# of a model's parameters: LoRA of rank 16, arXiv:2106.09685
_ADAPTER_SHARE: Final = 0.002


def _parameters(step: TrainStep, layout: TrainLayout) -> tuple[float, float]:
    """Return two numbers of parameters on one GPU: those of the average layer, and
    those at the ends of the model (embedding, and the output matrix if there is one
    stage)."""
    model = step.model
    tensor = layout.tensor
    layer = (model.attention_parameters + model.layer_extras) / tensor
    dense = (model.layers - model.moe_layers) / model.layers
    layer += dense * model.dense_ffn_parameters / tensor
    if model.experts is not None:
        routed_parameters = model.experts.count * model.expert_parameters
        shared_parameters = model.experts.shared * model.expert_parameters
        spread = (
            routed_parameters / layout.expert / layout.expert_tensor
            + shared_parameters / tensor
        )
        layer += (1 - dense) * spread
    end_parameters = float(model.embedding_parameters)
    if layout.pipeline == 1:
        end_parameters += model.head_parameters
    return layer, end_parameters / tensor
