"""Memory of a training run on one GPU, by what the memory is used for."""

from dataclasses import dataclass

from corral.catalog.overheads import Overhead, overhead
from corral.perf.activations import (
    element,
    kept_by_layer,
    layer_input,
    micro_tokens,
    passing,
)
from corral.perf.layout import Shard, TrainLayout, TrainStep
from corral.perf.sharding import (
    ShardedParameters,
    holding,
    padded_vocab,
    shards,
    shared_out,
    stage_layers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainMemory:
    """Bytes on one GPU of pipeline stage `stage`, by use. The fields in bytes add up to
    `allocated_peak`.

    Permanent: `weights`, `gradients`, `optimizer`, and `workspace`, which is that of
    libraries and includes the values passed between pipeline stages. Temporary:
    `activations`, `logits` (of the loss), `buffers` (of communication) and `passing`
    (gradients inside a layer).
    """

    stage: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    passing: float
    workspace: float
    over: Overhead

    @property
    def states(self) -> float:
        """Return the bytes of weights, gradients and optimizer."""
        return self.weights + self.gradients + self.optimizer

    @property
    def moving(self) -> float:
        """Return the bytes that are allocated and freed within each step."""
        return self.activations + self.logits + self.buffers + self.passing

    @property
    def allocated_steady(self) -> float:
        """Return the memory between two steps, as in torch.cuda.memory_allocated."""
        return self.states + self.workspace

    @property
    def allocated_peak(self) -> float:
        """Return the highest memory within a step, as in
        torch.cuda.max_memory_allocated."""
        return self.allocated_steady + self.moving

    @property
    def reserved(self) -> float:
        """Return the peak of reserved memory, as in torch.cuda.max_memory_reserved. It
        includes memory that the allocator holds but does not use."""
        return self.allocated_peak + self.over.unused_share * self.moving

    @property
    def device(self) -> float:
        """Return the memory that nvidia-smi shows, including the driver's context and
        NCCL."""
        return self.reserved + self.over.context + self.over.collectives

    @property
    def parts(self) -> dict[str, float]:
        """Return the bytes by use, as name and value. They add up to `allocated_peak`."""
        return {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "activations": self.activations,
            "logits": self.logits,
            "buffers": self.buffers,
            "passing": self.passing,
            "workspace": self.workspace,
        }


def training_memory(
    step: TrainStep,
    layout: TrainLayout,
    *,
    stage: int | None = None,
    architecture: str = "",
) -> TrainMemory:
    """Return the memory of one GPU of the given pipeline stage. If `stage` is None, use
    the stage that needs the most memory.

    `architecture` of the GPU, for example hopper, selects the memory constants of its
    libraries.
    Raises: ValueError if there is no such stage, or the batch cannot be divided evenly.
    Source: arXiv:2205.05198 (activations), arXiv:1910.02054 (sharding),
    arXiv:2104.04473 (micro batches in flight); each further allocation of Megatron-LM
    is named at its term.
    """
    overheads = overhead(architecture)
    if stage is not None:
        return _on_stage(step, layout, stage, overheads)
    return max(
        (
            _on_stage(step, layout, stage, overheads)
            for stage in _candidate_stages(step, layout)
        ),
        key=_peak_bytes,
    )


def _candidate_stages(step: TrainStep, layout: TrainLayout) -> set[int]:
    """Return the stages that may need the most memory: the first stage, which has most
    micro batches in flight; the last stage, which has the logits; and other stages, if
    they may have more layers or another kind of layers."""
    last_stage = layout.pipeline - 1
    is_even = not layout.first_layers and step.model.layers % layout.pipeline == 0
    if last_stage < 2 or (is_even and step.model.experts is None):
        return {0, last_stage}
    counts = [
        sum(stage_layers(step.model, layout, stage)) for stage in range(1, last_stage)
    ]
    return {0, 1, 1 + counts.index(max(counts)), last_stage - 1, last_stage}


def _peak_bytes(memory: TrainMemory) -> float:
    return memory.allocated_peak


def _on_stage(
    step: TrainStep, layout: TrainLayout, stage: int, over: Overhead
) -> TrainMemory:
    sharded_parameters = holding(step, layout, stage)
    dense_layers, moe_layers = stage_layers(step.model, layout, stage)
    weights, gradients, optimizer = _state_bytes(step, layout, sharded_parameters)
    logits = _logits_bytes(step, layout) if stage == layout.pipeline - 1 else 0.0
    inside = max(
        passing(step, layout, has_experts=False) if dense_layers else 0.0,
        passing(step, layout, has_experts=True) if moe_layers else 0.0,
    )
    return TrainMemory(
        stage=stage,
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=_activations(step, layout, stage),
        logits=logits,
        buffers=_shard_buffer_bytes(step, layout, sharded_parameters),
        # the loss comes before the first layer backwards
        passing=max(inside - logits, 0.0),
        workspace=_libraries(step, over) + _between_stages(step, layout),
        over=over,
    )


def _state_bytes(
    step: TrainStep, layout: TrainLayout, held: ShardedParameters
) -> tuple[float, float, float]:
    """Return bytes of weights, gradients and optimizer on one GPU. `held` are
    parameters before sharding."""
    copies = (shards(layout, of_experts=False), shards(layout, of_experts=True))
    state = step.state
    state_sizes = (state.weight, state.gradient, state.optimizer)
    weights, gradients, optimizer = (
        size
        * (
            held.dense / (copies[0] if is_sharded else 1)
            + held.expert / (copies[1] if is_sharded else 1)
        )
        for size, is_sharded in zip(state_sizes, shared_out(layout.shard), strict=True)
    )
    return weights, gradients, optimizer


def in_flight(step: TrainStep, layout: TrainLayout, stage: int) -> float:
    """Return the maximum number of micro batches whose activations a stage keeps at the
    same time in the 1F1B schedule: one for each stage from this one to the last. With
    interleaving, a stage has several pieces, and the number may be a fraction.

    Source: arXiv:2104.04473, section 2.2; Megatron-LM forward_backward_pipelining.
    """
    passes = step.micro_batches(layout)
    later_stages = layout.pipeline - stage - 1
    if layout.interleave == 1 or layout.pipeline == 1:
        return min(passes, later_stages + 1)
    pieces = 2 * later_stages + (layout.interleave - 1) * layout.pipeline + 1
    return min(passes, pieces / layout.interleave)


def _activations(step: TrainStep, layout: TrainLayout, stage: int) -> float:
    dense_layers, moe_layers = stage_layers(step.model, layout, stage)
    kept_bytes = 0.0
    if dense_layers:
        kept_bytes += dense_layers * kept_by_layer(step, layout, has_experts=False)
    if moe_layers:
        kept_bytes += moe_layers * kept_by_layer(step, layout, has_experts=True)
    if stage == layout.pipeline - 1 and step.ahead:
        kept_bytes += (
            step.ahead
            * _prediction_layer_bytes(step, layout)
            / in_flight(step, layout, stage)
        )
    if stage == 0 and step.dropout:
        # mask after the embedding
        kept_bytes += layer_input(step, layout) / element(step)
    total = kept_bytes * in_flight(step, layout, stage)
    if (
        stage == layout.pipeline - 1
        and layout.interleave > 1
        and step.model.layers % layout.pipeline
    ):
        # the output matrix stands for a layer of the last piece, of which one pass is
        # in flight: the layers are in pieces that more passes wait in
        total += (
            kept_bytes
            / (dense_layers + moe_layers)
            * max(in_flight(step, layout, stage) - 1, 0)
        )
    if stage == layout.pipeline - 1:
        total += 2 * layer_input(step, layout)  # the last norm, in and out
    return total


def _prediction_layer_bytes(step: TrainStep, layout: TrainLayout) -> float:
    """Return the bytes of one layer that predicts a token further ahead (multi-token
    prediction). It is a layer like the last one, with two norms and a joint input
    before it, and a norm after it."""
    has_experts = step.model.experts is not None
    layer = kept_by_layer(step, layout, has_experts=has_experts)
    return layer + 7 * layer_input(step, layout)


def _logits_bytes(step: TrainStep, layout: TrainLayout) -> float:
    tokens = micro_tokens(step, layout)
    return (
        (1 + step.ahead)
        * step.logit_bytes
        * tokens
        * padded_vocab(step, layout)
        / layout.tensor
    )


def _libraries(step: TrainStep, over: Overhead) -> float:
    """Return the bytes of the workspace of libraries. Experts are multiplied in several
    streams, and each stream has its own workspace."""
    grouped = step.model.experts is not None and step.grouped_experts
    return over.workspace + (over.expert_workspace if grouped else 0.0)


def _between_stages(step: TrainStep, layout: TrainLayout) -> float:
    """Return the bytes of the last input and the last gradient from another stage, for
    each piece of the pipeline: Megatron-LM's schedules hold them until the next step.
    """
    return (
        2 * layout.interleave * layer_input(step, layout)
        if layout.pipeline > 1
        else 0.0
    )


def _shard_buffer_bytes(
    step: TrainStep, layout: TrainLayout, held: ShardedParameters
) -> float:
    """Return the bytes of buffers for sharded parameters: weights of two layers,
    embedding and output matrix if weights are sharded, and one layer's gradients if
    gradients are sharded."""
    total = 0.0
    compute = element(step)
    if layout.shard is Shard.PARAMETERS and shards(layout, of_experts=False) > 1:
        total += compute * (2 * held.layer + held.ends)
    if step.state.gradient and layout.shard in (Shard.PARAMETERS, Shard.GRADIENTS):
        total += compute * held.layer
    return total
