"""Fine-tuning with LoRA, which adds small matrices to frozen weights: parameters and
memory."""

from dataclasses import replace
from typing import Final

from corral.catalog.models import Model
from corral.perf.layout import BytesPerParameter, Shard, TrainLayout, TrainStep
from corral.perf.memory import TrainMemory, training_memory
from corral.perf.sharding import shards, stage_layers

ADAPTER: Final = BytesPerParameter(
    weight=2.0, gradient=2.0, optimizer=12.0
)  # bytes a parameter of an adapter


def adapter_parameters(model: Model, rank: int) -> int:
    """Return the parameters of adapters of that rank for every matrix of attention and
    of dense MLPs; experts get none. The adapter of a matrix of n by m has rank x (n +
    m) parameters.

    Source: Hu et al. 2021, arXiv:2106.09685, section 4.1. Raises: ValueError if `rank`
    is below 1.
    """
    if rank < 1:
        raise ValueError(f"the rank of LoRA must be at least 1, not {rank}")
    dense = model.layers - model.moe_layers
    mlp = (3 if model.is_gated else 2) * (model.hidden + model.ffn)
    return rank * (model.layers * _attention_sides(model) + dense * mlp)


def _attention_sides(model: Model) -> int:
    """Return the sum of the numbers of rows and columns over all weight matrices of
    attention."""
    hidden, query = model.hidden, model.heads * model.head_dim
    if model.latent is None:
        return 2 * (hidden + query) + 2 * (hidden + model.kv_heads * model.head_dim)
    latent = model.latent
    query_out = model.heads * (model.head_dim + latent.rope_dim)
    into = hidden + query_out
    if latent.query_rank:
        into += 2 * latent.query_rank
    down = hidden + latent.kv_rank + latent.rope_dim
    up = latent.kv_rank + model.heads * (model.head_dim + latent.value_dim)
    return into + down + up + model.heads * latent.value_dim + hidden


def adapter_memory(
    step: TrainStep, layout: TrainLayout, *, rank: int, architecture: str = ""
) -> TrainMemory:
    """Return the memory of LoRA on the fullest GPU: weights in the precision of
    `step.state.weight`, and gradients and optimizer only for the adapters.

    Raises: ValueError if `rank` is below 1, or the layout is impossible.
    """
    frozen = replace(
        step,
        state=BytesPerParameter(weight=step.state.weight, gradient=0.0, optimizer=0.0),
    )
    base = training_memory(frozen, layout, architecture=architecture)
    share = sum(stage_layers(step.model, layout, base.stage)) / step.model.layers
    own_parameters = adapter_parameters(step.model, rank) * share / layout.tensor
    if layout.shard is Shard.PARAMETERS:
        own_parameters /= shards(layout, of_experts=False)
    return replace(
        base,
        weights=base.weights + ADAPTER.weight * own_parameters,
        gradients=ADAPTER.gradient * own_parameters,
        optimizer=ADAPTER.optimizer * own_parameters,
    )
