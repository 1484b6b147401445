"""Memory of a replica of a model: its weights on each GPU, and how many sequences fit
in addition."""

from math import ceil, floor
from typing import Final

from corral.perf.inference import Replica
from corral.perf.serving_memory import PAD, ServingReplica, cache_bytes, serving_memory

# of a GPU's memory that engines take: vLLM's gpu_memory_utilization, 0.9, and
USABLE: Final = 0.92
# TensorRT-LLM's free_gpu_memory_fraction, 0.9 of what weights leave
# bytes of a number in 4 bits, with a scale of 1 for each 16
SCALES: Final = {0.5: 0.5 + 1 / 16}


def weight_bytes(replica: Replica) -> float:
    """Return the bytes of weights on one GPU. Attention weights are stored whole on
    each GPU if the GPUs compute attention of different sequences. Experts are sharded.
    The embedding and output matrices are stored in 16 bits."""
    model = replica.model
    bytes_per_weight = SCALES.get(replica.weight_bytes, replica.weight_bytes)
    vocab = ceil(model.vocab / PAD) * PAD
    end_parameters = model.hidden * (
        vocab * (1 if model.is_tied else 2) + model.positions
    )
    experts = 0.0
    if model.experts is not None:
        experts = float(
            model.moe_layers * model.experts.count * model.expert_parameters
        )
    layers = (
        model.parameters - model.embedding_parameters - model.head_parameters - experts
    )
    shared_out = replica.tensor * replica.pipeline
    own_bytes = (
        bytes_per_weight * layers / shared_out
        + max(bytes_per_weight, 2.0)
        * end_parameters
        / replica.tensor
        / replica.pipeline
    )
    return own_bytes + bytes_per_weight * experts / (shared_out * replica.data)


def most_sequences(replica: Replica, context: int) -> int:
    """Return how many sequences of `context` tokens the whole replica can hold at once;
    0 if it cannot hold one, or if the weights alone are too large. The engine's own
    memory is in perf.serving_memory."""
    serving = ServingReplica(
        model=replica.model,
        context=context,
        batch=1,
        tensor=replica.tensor,
        pipeline=replica.pipeline,
        weight_bytes=replica.weight_bytes,
        kv_bytes=replica.kv_bytes,
    )
    memory_needs = serving_memory(serving, architecture=replica.device.architecture)
    beside = (
        memory_needs.activations
        + memory_needs.workspace
        + memory_needs.context
        + memory_needs.collectives
    )
    free_bytes = USABLE * replica.device.memory_bytes - weight_bytes(replica) - beside
    return max(0, floor(free_bytes / cache_bytes(serving))) * replica.data


def fits(replica: Replica, context: int) -> bool:
    """Return whether the replica can hold at least one sequence of `context` tokens."""
    return most_sequences(replica, context) >= 1
