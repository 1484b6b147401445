"""Memory of serving a model on one GPU: weights, keys and values, and what a step
needs."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from corral.catalog.models import Model
from corral.catalog.overheads import Overhead, overhead
from corral.perf.layout import TrainLayout, TrainStep
from corral.perf.sharding import holding

ACTIVATION_BYTES: Final = 2.0
SCORE_BYTES: Final = 4.0  # of a logit while the next token is drawn
PAD: Final = 64  # rows to which vLLM pads a vocabulary
# tokens of prompts that a step takes at once: vLLM's max_num_batched_tokens
CHUNK: Final = 8_192
# a scale of 2 bytes for each 128 numbers in 4 bits
SCALE_BYTES: Final = {0.5: 2.0 / 128}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingReplica:
    """One copy of a model on `tensor` x `pipeline` GPUs, for `batch` sequences of
    `context` tokens.

    `weight_bytes`: bytes of one weight in the layers; the embedding and output matrices
    keep 2 if `weight_bytes` is less. `kv_bytes`: bytes of one number in the cache.
    `chunk`: prompt tokens in one step.
    """

    model: Model
    context: int
    batch: int
    tensor: int = 1
    pipeline: int = 1
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        if min(self.context, self.batch, self.tensor, self.pipeline, self.chunk) < 1:
            raise ValueError(
                "context, batch, chunk and each part of a replica must be at least 1"
            )
        if self.pipeline > self.model.layers:
            raise ValueError(
                f"{self.model.layers} layers are too few for {self.pipeline} stages"
            )

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMemory:
    """Bytes on the GPU of a replica that needs the most. The fields add up to `device`,
    its total memory.

    `cache`: keys and values. `activations`: those of the largest step, and the logits
    of its sequences. `workspace`: that of the libraries. `context`: that of the driver.
    `collectives`: that of the communication library.
    """

    weights: float
    cache: float
    activations: float
    workspace: float
    context: float
    collectives: float

    @property
    def device(self) -> float:
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, float]:
        return {
            "weights": self.weights,
            "KV cache": self.cache,
            "activations": self.activations,
            "workspace": self.workspace,
            "context": self.context,
            "collectives": self.collectives,
        }


def serving_memory(serving: ServingReplica, *, architecture: str = "") -> ServingMemory:
    """Return the memory of the GPU of a replica that needs the most.

    `architecture` of the GPU selects the memory constants of its libraries. Source:
    keys and values as in arXiv:2309.06180, section 3; what an engine needs in addition:
    catalog/data/overheads.csv.
    """
    overheads = overhead(architecture)
    is_multi_gpu = serving.gpus > 1
    return ServingMemory(
        weights=max(
            _stage_weight_bytes(serving, stage) for stage in {0, serving.pipeline - 1}
        ),
        cache=cache_bytes(serving),
        activations=_activations(serving),
        workspace=_workspace(serving, overheads),
        context=overheads.context,
        collectives=overheads.collectives if is_multi_gpu else 0.0,
    )


def _workspace(serving: ServingReplica, over: Overhead) -> float:
    return over.workspace + (over.expert_workspace if serving.model.experts else 0.0)


def _stage_weight_bytes(serving: ServingReplica, stage: int) -> float:
    step = TrainStep(
        model=serving.model, sequence=1, global_batch=1, vocab_multiple=PAD
    )
    layout = TrainLayout(
        tensor=serving.tensor, pipeline=serving.pipeline, expert_tensor=serving.tensor
    )
    sharded_parameters = holding(step, layout, stage)
    bytes_per_weight = serving.weight_bytes + SCALE_BYTES.get(serving.weight_bytes, 0.0)
    layers = (
        sharded_parameters.dense + sharded_parameters.expert - sharded_parameters.ends
    )
    return (
        bytes_per_weight * layers
        + max(serving.weight_bytes, ACTIVATION_BYTES) * sharded_parameters.ends
    )


def kv_token_bytes(model: Model, *, kv_bytes: float = 2.0, tensor: int = 1) -> float:
    """Return the bytes of keys and values of one token in all layers, on one of
    `tensor` GPUs. Attention windows are ignored.

    With latent attention each GPU holds the compressed vector in full.
    """
    return model.layers * _kv_layer_bytes(model, kv_bytes, tensor)


def _kv_layer_bytes(model: Model, kv_bytes: float, tensor: int) -> float:
    if model.latent is not None:
        return kv_bytes * (model.latent.kv_rank + model.latent.rope_dim)
    return kv_bytes * 2 * model.head_dim * ceil(model.kv_heads / tensor)


def cache_bytes(serving: ServingReplica) -> float:
    """Return the bytes of keys and values of all sequences on one GPU. Layers with a
    window keep at most the window's tokens."""
    model = serving.model
    layer_token_bytes = _kv_layer_bytes(model, serving.kv_bytes, serving.tensor)
    windowed = model.window_layers if model.window else 0
    window_tokens = min(serving.context, model.window) if windowed else 0
    tokens = (model.layers - windowed) * serving.context + windowed * window_tokens
    stages = ceil(model.layers / serving.pipeline) / model.layers
    return serving.batch * layer_token_bytes * tokens * stages


def _activations(serving: ServingReplica) -> float:
    """Return the bytes of activations of one step's tokens: the residual stream and its
    norm, and the widest part inside a layer (queries, keys and values, or the MLP). A
    token is copied for each expert that it is routed to."""
    model = serving.model
    tokens = max(min(serving.chunk, serving.batch * serving.context), serving.batch)
    attention = (model.heads + 2 * model.kv_heads) * model.head_dim / serving.tensor
    wide = 3 if model.is_gated else 2
    inside = max(attention, wide * model.ffn / serving.tensor)
    if model.experts is not None:
        experts = model.experts
        activation_bytes = 2 * model.hidden + wide * experts.ffn / serving.tensor
        inside = max(inside, (experts.per_token + experts.shared) * activation_bytes)
    step = ACTIVATION_BYTES * tokens * (2 * model.hidden + inside)
    return step + SCORE_BYTES * serving.batch * model.vocab / serving.tensor
