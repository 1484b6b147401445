"""Parameters on one GPU: those of its pipeline stage, its tensor shard and its
experts."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from corral.catalog.models import Model
from corral.perf.layout import Shard, TrainLayout, TrainStep


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedParameters:
    """Numbers of parameters on one GPU before sharding over data-parallel GPUs.

    `dense`: all but experts. `expert`: the experts on the GPU, which are sharded over
    another group of GPUs. `layer`: the largest layer. `ends`: embedding and output
    matrix, which are part of `dense`.
    """

    dense: float
    expert: float
    layer: float
    ends: float


def stage_layers(model: Model, layout: TrainLayout, stage: int) -> tuple[int, int]:
    """Return, for a pipeline stage, its number of dense layers and its number of layers
    with experts. The dense layers come first in a model.

    If the layers cannot be divided evenly, embedding and output matrix count as a layer
    each, and the remaining layers go to the later stages in the middle. Source:
    arXiv:2407.21783, section 3.3.2; Megatron-LM,
    account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split.
    Raises: ValueError if there is no such stage.
    """
    if not 0 <= stage < layout.pipeline:
        raise ValueError(
            f"there is no stage {stage} of {layout.pipeline} pipeline stages"
        )
    first_layer, count = _stage_layer_span(
        model.layers, layout.pipeline, layout.first_layers, layout.last_layers, stage
    )
    dense = model.layers - model.moe_layers
    own_dense = max(0, min(dense, first_layer + count) - first_layer)
    return own_dense, count - own_dense


@lru_cache(maxsize=4096)
def _stage_layer_span(
    layers: int, stages: int, first_layers: int, last_layers: int, stage: int
) -> tuple[int, int]:
    """Return the index of the first layer of a stage, and the number of its layers."""
    if stages == 1:
        return 0, layers
    if layers % stages and not first_layers and not last_layers:
        first_layers, last_layers = _ends_layers(layers, stages)
    fixed_counts = {0: first_layers, stages - 1: last_layers}
    fixed_counts = {
        fixed_stage: count for fixed_stage, count in fixed_counts.items() if count
    }
    free_stages = stages - len(fixed_counts)
    even, extra_layers = divmod(
        max(layers - sum(fixed_counts.values()), 0), max(free_stages, 1)
    )
    # stages of no fixed number of layers
    free_before = stage - sum(fixed_stage < stage for fixed_stage in fixed_counts)
    start_layer = sum(
        count for fixed_stage, count in fixed_counts.items() if fixed_stage < stage
    )
    start_layer += free_before * even + max(
        free_before - (free_stages - extra_layers), 0
    )
    return start_layer, fixed_counts.get(
        stage, even + (1 if free_before >= free_stages - extra_layers else 0)
    )


def _ends_layers(layers: int, stages: int) -> tuple[int, int]:
    """Return the numbers of layers of the first and the last stage if layers do not
    divide evenly. Embedding and output matrix count as a layer each."""
    layers_per_stage, extra_layers = divmod(layers + 2, stages)
    return max(layers_per_stage - 1 + (extra_layers > stages - 2), 1), max(
        layers_per_stage - 1, 1
    )


def busiest_layers(model: Model, layout: TrainLayout) -> tuple[int, int, int]:
    """Return three numbers of layers: of the first stage, of the stage with the most
    layers, and of the last stage. In an interleaved pipeline all stages wait for the
    largest piece, so each piece counts as that large."""
    stages, pieces = layout.pipeline, layout.interleave
    first_stage_layers, middle, last_stage_layers = (
        sum(stage_layers(model, layout, stage))
        for stage in (0, max(stages - 2, 0), stages - 1)
    )
    max_layers = max(first_stage_layers, middle, last_stage_layers)
    if pieces > 1:
        slots = model.layers + (2 if model.layers % stages else 0)
        max_layers = max(max_layers, ceil(slots / (stages * pieces)) * pieces)
    return first_stage_layers, max_layers, last_stage_layers


def padded_vocab(step: TrainStep, layout: TrainLayout) -> int:
    """Return the rows of the embedding, padded so that all tensor-parallel GPUs have
    the same number."""
    row_multiple = max(step.vocab_multiple, 1) * layout.tensor
    return ceil(step.model.vocab / row_multiple) * row_multiple


def holding(step: TrainStep, layout: TrainLayout, stage: int) -> ShardedParameters:
    """Return the parameters on one GPU of a stage."""
    model = step.model
    dense_layers, moe_layers = stage_layers(model, layout, stage)
    ahead = step.ahead if stage == layout.pipeline - 1 else 0
    if model.experts is None:
        dense_layers += ahead
    else:
        moe_layers += ahead
    base_parameters = _attention(model, layout) + _extra_parameters(model, layout)
    dense = model.dense_ffn_parameters / layout.tensor
    beside, experts = _moe_parameters(model, layout) if moe_layers else (0.0, 0.0)
    end_parameters = _embedding_parameters(step, layout, stage)
    joint = ahead * (2 * model.hidden**2 / layout.tensor + 3 * model.hidden)
    return ShardedParameters(
        dense=dense_layers * (base_parameters + dense)
        + moe_layers * (base_parameters + beside)
        + end_parameters
        + joint,
        expert=moe_layers * experts,
        layer=base_parameters + max(dense if dense_layers else 0.0, beside + experts),
        ends=end_parameters,
    )


def _attention(model: Model, layout: TrainLayout) -> float:
    """Return the attention parameters of one layer on one GPU. Keys and values are
    divided into at most as many parts as they have heads. With latent attention, each
    GPU holds the compressing matrices in full."""
    tensor = layout.tensor
    if model.latent is None:
        query = 2 * model.hidden * model.heads * model.head_dim
        keys = 2 * model.hidden * model.kv_heads * model.head_dim
        return query / tensor + keys / min(tensor, model.kv_heads)
    latent = model.latent
    replicated_weights = model.hidden * (
        latent.query_rank + latent.kv_rank + latent.rope_dim
    )
    return (
        replicated_weights + (model.attention_parameters - replicated_weights) / tensor
    )


def _extra_parameters(model: Model, layout: TrainLayout) -> float:
    if not model.has_bias:
        return float(model.layer_extras)
    cut = (model.heads + 2 * model.kv_heads) * model.head_dim + model.ffn
    return model.layer_extras - cut + cut / layout.tensor


def _moe_parameters(model: Model, layout: TrainLayout) -> tuple[float, float]:
    """Return two numbers of parameters on one GPU for one layer: those of the router
    and the shared experts, and those of the GPU's own experts."""
    experts = model.experts
    if experts is None:
        return 0.0, 0.0
    shared_parameters = experts.shared * model.expert_parameters / layout.tensor
    own_parameters = (
        experts.count / layout.expert * model.expert_parameters / layout.expert_tensor
    )
    return model.hidden * experts.count + shared_parameters, own_parameters


def _embedding_parameters(step: TrainStep, layout: TrainLayout, stage: int) -> float:
    """Return the parameters of embedding, positions and output matrix. The last stage
    of a model with tied embeddings has its own copy."""
    model = step.model
    matrix = padded_vocab(step, layout) * model.hidden / layout.tensor
    is_first, is_last = stage == 0, stage == layout.pipeline - 1
    total = matrix + model.positions * model.hidden if is_first else 0.0
    if is_last:
        total += model.hidden
        if not model.is_tied or not is_first:
            total += matrix
        if step.ahead and not model.is_tied and not is_first:
            total += matrix  # what predicts further ahead embeds the token before
    return total


def shards(layout: TrainLayout, *, of_experts: bool) -> int:
    """Return over how many GPUs the same parameters can be sharded: data x context,
    divided by the number of sharded copies. For experts, it is the GPUs of a stage that
    have the same expert."""
    copies = layout.data * layout.context // layout.replicas
    if of_experts:
        copies = copies * layout.tensor // (layout.expert * layout.expert_tensor)
    return max(copies, 1)


def shared_out(shard: Shard) -> tuple[bool, bool, bool]:
    """Return whether weights, gradients and optimizer states are sharded, in this
    order, for a ZeRO stage."""
    order = list(Shard)
    rank = order.index(shard)
    return rank >= 3, rank >= 2, rank >= 1
