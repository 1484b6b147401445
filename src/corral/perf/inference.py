"""Seconds of the steps of an inference engine: for prompts, and for one new token at a
time."""

from dataclasses import dataclass, replace
from typing import Final

from corral.catalog.devices import Device
from corral.catalog.models import Experts, Latent, Model
from corral.catalog.precisions import Precision
from corral.perf.attention import cache_attention_seconds, prompt_attention_seconds
from corral.perf.collectives import (
    Collective,
    collective_seconds,
    small_all_reduce_seconds,
)
from corral.perf.engines import InferenceEngine
from corral.perf.kernels import kernels
from corral.perf.matmul import matmul_seconds
from corral.perf.topology import GpuGroup, Wires

# of one number between two layers, whatever the weights are kept in
ACTIVATION_BYTES: Final = 2.0
# tokens of a prompt that a stage passes on at once: llama.cpp's n_ubatch
CHUNK: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One copy of a model, on `tensor` x `pipeline` x `data` GPUs.

    `data`: number of GPUs of which each computes attention for its own sequences; they
    share the experts. `expert`: number of GPUs over which the experts are distributed;
    1: each expert is divided over the GPUs. `precision`: of the matrix products.
    `weight_bytes`, `kv_bytes`: bytes of one stored number.
    """

    model: Model
    device: Device
    wires: Wires
    engine: InferenceEngine
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    precision: Precision = Precision.BF16
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0

    def __post_init__(self) -> None:
        if min(self.tensor, self.pipeline, self.data, self.expert) < 1:
            raise ValueError("each part of a replica must be at least 1")
        if self.pipeline > self.model.layers:
            raise ValueError(
                f"{self.model.layers} layers are too few for {self.pipeline} stages"
            )

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """Work of one step: `prompt` tokens that attend to `prompt_context` tokens each on
    average, and one new token of each of `decodes` sequences with `context` tokens on
    average. `ends`: prompts that end in the step, so that their first token is sampled.
    """

    prompt: float = 0.0
    prompt_context: float = 0.0
    ends: float = 0.0
    decodes: float = 0.0
    context: float = 0.0

    @property
    def tokens(self) -> float:
        return self.prompt + self.decodes

    def part(self, parts: int) -> "StepWork":
        """Return one of `parts` equal parts of the step's work."""
        return replace(
            self,
            prompt=self.prompt / parts,
            ends=self.ends / parts,
            decodes=self.decodes / parts,
        )


def step_seconds(replica: Replica, work: StepWork) -> float:
    """Return the seconds of one step of an inference engine, from its start until its
    tokens are there.

    Each GPU reads its weights once. The partial results of tensor-parallel GPUs are
    summed twice a layer. The stages of a pipeline run one after another. Source of what
    an engine adds: catalog/data/engines.csv.
    """
    if work.tokens <= 0:
        return 0.0
    model, engine = replica.model, replica.engine
    if work.prompt > 0 and engine.prompt_matmul != 1.0:
        slower = replace(engine, matmul=engine.matmul * engine.prompt_matmul)
        replica = replace(replica, engine=slower)
    token_rows = _matmul_rows(work.tokens / replica.data)
    common = _attention_seconds(replica, work, token_rows) + engine.layer_seconds
    common += engine.sequence_layer_seconds * (work.decodes + work.ends)
    min_layer_seconds = engine.prompt_layer_seconds if work.prompt else 0.0
    seconds = _sends_seconds(replica, token_rows)
    if model.layers > model.moe_layers:
        layer = (
            common
            + _mlp_seconds(replica, token_rows, model.ffn)
            + _sum_seconds(replica, token_rows)
        )
        seconds += (model.layers - model.moe_layers) * max(min_layer_seconds, layer)
    if model.experts is not None:
        layer = common + _experts_seconds(replica, model.experts, work.tokens)
        layer += engine.experts_seconds
        seconds += model.moe_layers * max(min_layer_seconds, layer)
    drawn = work.ends + work.decodes
    return seconds + _head_seconds(replica, drawn) + engine.step_seconds


def pipelined_seconds(replica: Replica, work: StepWork) -> float:
    """Return the seconds of one step of a whole batch through the pipeline, from start
    to end. The batch passes as a whole, or in as many parts as is fastest. With more
    parts the stages wait less for each other, but each stage reads its weights again
    for each part. Sequences are not divided; prompts are divided, at `CHUNK` tokens."""
    best_seconds = step_seconds(replica, work)
    stages = replica.pipeline
    max_micro_batches = max(work.ends + work.decodes, work.prompt / CHUNK)
    micro_batches = stages
    while stages > 1 and micro_batches <= max_micro_batches:
        stage_seconds = step_seconds(replica, work.part(micro_batches)) / stages
        best_seconds = min(best_seconds, (micro_batches + stages - 1) * stage_seconds)
        micro_batches *= 2
    return best_seconds


def prefill_seconds(replica: Replica, *, batch: int, tokens: int) -> float:
    """Return the seconds from `batch` prompts of `tokens` tokens to the first token of
    each."""
    work = StepWork(prompt=batch * tokens, prompt_context=tokens / 2, ends=batch)
    return pipelined_seconds(replica, work)


def decode_seconds(replica: Replica, *, batch: int, context: float) -> float:
    """Return the seconds for one new token of each of `batch` sequences that have
    `context` tokens."""
    return pipelined_seconds(replica, StepWork(decodes=batch, context=context))


def static_batch_seconds(
    replica: Replica, *, batch: int, prompt: int, output: int
) -> float:
    """Return the seconds of `batch` requests that begin and end together. Each has a
    prompt of `prompt` tokens and then gets `output` tokens, one after another.

    The first token comes from the prompt. A step's time grows linearly with its
    context, so the middle step stands for all.
    """
    seconds = prefill_seconds(replica, batch=batch, tokens=prompt)
    if output <= 1:
        return seconds
    middle = prompt + output / 2
    return seconds + (output - 1) * decode_seconds(replica, batch=batch, context=middle)


def _matmul_rows(tokens: float) -> int:
    return max(1, round(tokens))


def _product_seconds(
    replica: Replica, m: int, n: int, k: int, *, groups: int = 1
) -> float:
    seconds = matmul_seconds(
        m,
        n,
        k,
        replica.device,
        replica.precision,
        groups=groups,
        weight_bytes=replica.weight_bytes,
        most_bytes_per_s_processor=replica.engine.processor_bytes_per_s,
    )
    return seconds / replica.engine.matmul


def _moved_seconds(replica: Replica, size_bytes: float) -> float:
    """Return the time in which small kernels read and write these bytes in memory;
    their launches are in the engine's `layer_seconds`."""
    device = replica.device
    return size_bytes / (
        device.memory_bytes_per_s * kernels(device.architecture).memory
    )


def _ceil_divide(size: int, parts: int) -> int:
    return -(-size // parts)


def _attention_seconds(replica: Replica, work: StepWork, tokens: int) -> float:
    model, tensor_shards = replica.model, replica.tensor
    if model.latent is None:
        numbers = model.heads * model.head_dim
        three = _ceil_divide(
            numbers + 2 * model.kv_heads * model.head_dim, tensor_shards
        )
        seconds = _product_seconds(replica, tokens, three, model.hidden)
        seconds += _product_seconds(
            replica, tokens, model.hidden, _ceil_divide(numbers, tensor_shards)
        )
    else:
        seconds = _latent_products(replica, model.latent, tokens)
    if work.prompt > 0:
        seconds += prompt_attention_seconds(
            model,
            replica.device,
            tokens=work.prompt / replica.data,
            context=work.prompt_context,
            tensor=tensor_shards,
        )
    if work.decodes > 0:
        seconds += cache_attention_seconds(
            model,
            replica.device,
            sequences=work.decodes / replica.data,
            context=work.context,
            kv_bytes=replica.kv_bytes,
            tensor=tensor_shards,
            share=replica.engine.attention,
            reread=replica.engine.reread,
        )
    passed = ACTIVATION_BYTES * replica.engine.passes * tokens * model.hidden
    return seconds + _moved_seconds(replica, passed) + _sum_seconds(replica, tokens)


def _latent_products(replica: Replica, latent: Latent, tokens: int) -> float:
    """Return the time of one layer's matrix products with multi-head latent attention.
    Its up-projections are merged into queries and outputs: arXiv:2405.04434, section
    2.1.2."""
    model, tensor_shards = replica.model, replica.tensor
    down = latent.query_rank + latent.kv_rank + latent.rope_dim
    queries = _ceil_divide(
        model.heads * (model.head_dim + latent.rope_dim), tensor_shards
    )
    key_value_width = _ceil_divide(
        model.heads * (model.head_dim + latent.value_dim), tensor_shards
    )
    values = _ceil_divide(model.heads * latent.value_dim, tensor_shards)
    return (
        _product_seconds(replica, tokens, down, model.hidden)
        + _product_seconds(replica, tokens, queries, latent.query_rank or model.hidden)
        + _product_seconds(replica, tokens, key_value_width, latent.kv_rank)
        + _product_seconds(replica, tokens, model.hidden, values)
    )


def _mlp_seconds(replica: Replica, tokens: int, ffn: int) -> float:
    model = replica.model
    own_width = _ceil_divide(ffn, replica.tensor)
    wide = own_width * (2 if model.is_gated else 1)
    seconds = _product_seconds(replica, tokens, wide, model.hidden)
    seconds += _product_seconds(replica, tokens, model.hidden, own_width)
    passed = ACTIVATION_BYTES * tokens * (wide + own_width)
    return seconds + _moved_seconds(replica, passed)


def experts_touched(experts: Experts, tokens: float) -> float:
    """Return how many experts of a layer at least one of `tokens` tokens uses, if each
    token draws its experts at random."""
    missed: float = (1 - experts.per_token / experts.count) ** tokens
    return experts.count * (1 - missed)


def _experts_seconds(replica: Replica, experts: Experts, tokens: float) -> float:
    model = replica.model
    touched = experts_touched(experts, tokens)
    rows = _matmul_rows(replica.engine.imbalance * tokens * experts.per_token / touched)
    local_experts = _matmul_rows(touched / replica.expert)
    inner = _ceil_divide(
        experts.ffn, max(1, replica.tensor * replica.data // replica.expert)
    )
    wide = inner * (2 if model.is_gated else 1)
    seconds = _product_seconds(replica, rows, wide, model.hidden, groups=local_experts)
    seconds += _product_seconds(
        replica, rows, model.hidden, inner, groups=local_experts
    )
    passed = ACTIVATION_BYTES * local_experts * rows * (2 * model.hidden + wide + inner)
    seconds += _moved_seconds(replica, passed)
    token_rows = _matmul_rows(tokens / replica.data)
    if beside := experts.ffn * experts.shared + experts.shared_ffn:
        seconds += _mlp_seconds(replica, token_rows, beside)
    if replica.data > 1:
        return seconds + 2 * _exchange_seconds(replica, token_rows * experts.per_token)
    return seconds + _sum_seconds(replica, token_rows)


def _build_gpu_group(replica: Replica, size: int) -> GpuGroup:
    inside = min(size, replica.wires.domain_gpus)
    while size % inside:
        inside -= 1
    return GpuGroup(size=size, per_domain=inside)


def _sum_seconds(replica: Replica, tokens: int) -> float:
    """Return the time of one of the two all-reduces that a layer needs over the
    tensor-parallel GPUs; 0 for one GPU."""
    if replica.tensor == 1:
        return 0.0
    size = ACTIVATION_BYTES * tokens * replica.model.hidden
    group = _build_gpu_group(replica, replica.tensor)
    if replica.engine.sums_in_one:
        seconds = small_all_reduce_seconds(size, group, replica.wires)
    else:
        seconds = collective_seconds(Collective.ALL_REDUCE, size, group, replica.wires)
    return seconds + replica.engine.sum_seconds * group.domains


def _exchange_seconds(replica: Replica, tokens: float) -> float:
    """Return the time to send the tokens of all GPUs to the experts that they chose, or
    back."""
    size = ACTIVATION_BYTES * tokens * replica.model.hidden
    group = _build_gpu_group(replica, replica.data)
    return collective_seconds(Collective.ALL_TO_ALL, size, group, replica.wires)


def _sends_seconds(replica: Replica, tokens: int) -> float:
    """Return the time of all transfers of activations from one pipeline stage to the
    next; 0 without a pipeline."""
    if replica.pipeline == 1:
        return 0.0
    size = ACTIVATION_BYTES * tokens * replica.model.hidden / replica.tensor
    inside = replica.gpus <= replica.wires.domain_gpus
    group = GpuGroup(size=2, per_domain=2 if inside else 1)
    send_seconds = collective_seconds(Collective.SEND_RECV, size, group, replica.wires)
    return (replica.pipeline - 1) * send_seconds


def _head_seconds(replica: Replica, drawn: float) -> float:
    """Return the time to compute the logits of `drawn` sequences with the output
    matrix, stored in 16 bits, and of the engine's work for each of these sequences."""
    if drawn <= 0:
        return 0.0
    model = replica.model
    vocab = _ceil_divide(model.vocab, replica.tensor)
    rows = _matmul_rows(drawn / replica.data)
    seconds = matmul_seconds(rows, vocab, model.hidden, replica.device, Precision.FP16)
    return seconds + replica.engine.sequence_seconds * drawn
