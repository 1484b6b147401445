"""Computation time of one GPU for one layer, and for the output layer, of one micro
batch."""

from dataclasses import dataclass
from typing import Final

from corral.catalog.devices import Device
from corral.catalog.models import Model
from corral.catalog.precisions import Precision
from corral.perf.attention import pair_numbers
from corral.perf.layout import TrainLayout, TrainStep
from corral.perf.matmul import matmul_seconds, streamed_seconds
from corral.perf.software import Software, sustained

# Bytes that fused kernels move for a number of the residual stream in one layer: two
# norms (read, write) and two additions with dropout (read two, write one and a mask),
# in 16 bits; backward a norm reads two and writes one and an addition hands two on.
_STREAM_FORWARD: Final = 22.0
_STREAM_BACKWARD: Final = 36.0
# activations, and turning queries, keys and values: read and write
_INNER_FORWARD: Final = 4.0
_INNER_BACKWARD: Final = 6.0
# Attention without a flash kernel, for a number of its square: scale, mask, softmax and
# dropout, each a kernel. Source: fit: validation/data/training.csv.gz, SC21 and vTrain
# rows.
_SQUARE_FORWARD: Final = 12.5
_SQUARE_BACKWARD: Final = 25.0
# five products, two in the forward pass: arXiv:2307.08691
_FLASH_BACKWARD_PRODUCTS: Final = 2.5
_CAUSAL: Final = 0.5  # half of the square is masked, and a flash kernel skips it
_NARROW_FLOPS: Final = 2.0  # of 8 bits for the power of one of 16
_PERMUTES: Final = 2  # tokens are brought in the order of their experts, and back
_KERNELS: Final = 6  # elementwise kernels of one pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Seconds of one GPU for one layer in one direction, by kind of kernel."""

    matmul: float
    attention: float
    elementwise: float

    @property
    def seconds(self) -> float:
        return self.matmul + self.attention + self.elementwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Part of a micro batch and of a layer that one GPU computes, in tokens, heads and
    widths."""

    tokens: int  # of a micro batch, after context parallelism
    sequence: int  # that its queries come from
    heads: int
    kv_heads: int
    ffn: int
    stream: int  # GPUs that the norms are shared out over


def share(step: TrainStep, layout: TrainLayout) -> Share:
    model, tensor = step.model, layout.tensor
    sequence = max(step.sequence // layout.context, 1)
    return Share(
        tokens=layout.micro_batch * sequence,
        sequence=sequence,
        heads=max(model.heads // tensor, 1),
        kv_heads=max(model.kv_heads // tensor, 1),
        ffn=max(model.ffn // tensor, 1),
        stream=tensor if layout.sequence_parallel else 1,
    )


Product = tuple[int, int, int, int]  # rows, columns, inner size, how many side by side


def layer_passes(
    step: TrainStep,
    layout: TrainLayout,
    device: Device,
    software: Software,
    *,
    has_experts: bool,
) -> tuple[Pass, Pass]:
    """Return the time of one layer forward, and the time backward, on one of its
    tensor-parallel GPUs.

    Unit: seconds of one micro batch. A frozen model, as in LoRA, computes no gradients
    of its weights; its gradients have no bytes. Source: arXiv:2205.05198, appendix A,
    for the products; constants: perf/software.py.
    """
    own_share = share(step, layout)
    products = _layer_products(step.model, layout, own_share, has_experts=has_experts)
    forward = sum(_product_seconds(product, step, device) for product in products)
    backward = sum(_backward_seconds(product, step, device) for product in products)
    attention_forward, attention_backward = _attention(
        step, layout, own_share, device, software
    )
    stream = own_share.tokens * step.model.hidden / own_share.stream
    inner = own_share.tokens * _inner_numbers(
        step.model, layout, own_share, has_experts=has_experts
    )
    bytes_forward = _STREAM_FORWARD * stream + _INNER_FORWARD * inner
    bytes_backward = _STREAM_BACKWARD * stream + _INNER_BACKWARD * inner
    own_kernel = streamed_seconds(0.0, device)
    return (
        Pass(
            matmul=forward,
            attention=attention_forward,
            elementwise=streamed_seconds(bytes_forward * software.elementwise, device)
            + (_KERNELS - 1) * own_kernel,
        ),
        Pass(
            matmul=backward,
            attention=attention_backward,
            elementwise=streamed_seconds(bytes_backward * software.elementwise, device)
            + (_KERNELS - 1) * own_kernel,
        ),
    )


def _layer_products(
    model: Model, layout: TrainLayout, own: Share, *, has_experts: bool
) -> list[Product]:
    queries = own.heads * model.head_dim
    ahead = queries + 2 * own.kv_heads * model.head_dim
    if model.latent is not None:
        ahead = queries = max(
            model.attention_parameters // (2 * model.hidden * layout.tensor), 1
        )
    up = 2 if model.is_gated else 1
    products = [
        (own.tokens, ahead, model.hidden, 1),
        (own.tokens, model.hidden, queries, 1),
    ]
    if not has_experts or model.experts is None:
        products += [
            (own.tokens, up * own.ffn, model.hidden, 1),
            (own.tokens, model.hidden, own.ffn, 1),
        ]
        return products
    experts = model.experts
    local_experts = max(experts.count // layout.expert, 1)
    # a GPU gets as many tokens for its experts as it sends to those of others; the GPUs
    # of a tensor group send a part each, and those that share out an expert have all of
    # each other's
    passing = own.tokens * experts.per_token * layout.expert_tensor // layout.tensor
    rows = max(passing // local_experts, 1)
    ffn = max(experts.ffn // layout.expert_tensor, 1)
    products += [
        (rows, up * ffn, model.hidden, local_experts),
        (rows, model.hidden, ffn, local_experts),
    ]
    if experts.shared:
        wide = max(experts.shared * experts.ffn // layout.tensor, 1)
        products += [
            (own.tokens, up * wide, model.hidden, 1),
            (own.tokens, model.hidden, wide, 1),
        ]
    return products


def _inner_numbers(
    model: Model, layout: TrainLayout, own: Share, *, has_experts: bool
) -> float:
    """Return how many numbers one token has between the matrix products of a layer: the
    inputs of the activation function and of attention. `own`: the part of one GPU."""
    up = 2 if model.is_gated else 1
    ffn = float(own.ffn)
    if has_experts and model.experts is not None:
        experts = model.experts
        ffn = (experts.per_token + experts.shared) * experts.ffn / layout.tensor
        ffn += experts.per_token * _PERMUTES * model.hidden / up / layout.tensor
    between = (own.heads + 2 * own.kv_heads) * model.head_dim
    if model.latent is not None:
        between = own.heads * (
            model.head_dim + model.latent.rope_dim + pair_numbers(model)
        )
    return up * ffn + between


def _product_seconds(one: Product, step: TrainStep, device: Device) -> float:
    rows, columns, inner, groups = one
    return _held_seconds(one, step.precision, device)


def _held_seconds(one: Product, precision: Precision, device: Device) -> float:
    """Return the seconds of a matrix product at the clock that the architecture
    sustains, or at a lower clock if the GPU's power limit requires it."""
    rows, columns, inner, groups = one
    sustained_rates = sustained(device.architecture)
    is_narrow = precision.bytes < 2
    share = sustained_rates.narrow_matmul if is_narrow else sustained_rates.matmul
    seconds = (
        matmul_seconds(rows, columns, inner, device, precision, groups=groups) / share
    )
    if not sustained_rates.flops_per_watt:
        return seconds
    powered = (
        sustained_rates.flops_per_watt
        * device.tdp_watts
        * (_NARROW_FLOPS if is_narrow else 1.0)
    )
    return max(seconds, 2.0 * rows * columns * inner * groups / powered)


def _backward_seconds(one: Product, step: TrainStep, device: Device) -> float:
    rows, columns, inner, groups = one
    inputs = _product_seconds((rows, inner, columns, groups), step, device)
    if not step.state.gradient:
        return inputs
    return inputs + _product_seconds((inner, columns, rows, groups), step, device)


def _attention(
    step: TrainStep, layout: TrainLayout, own: Share, device: Device, software: Software
) -> tuple[float, float]:
    model = step.model
    groups = layout.micro_batch * own.heads
    if step.has_flash:
        looked = _looked_at(step)
        flops = 2.0 * groups * own.sequence * looked * pair_numbers(model)
        sustained_rates = sustained(device.architecture)
        peak = device.flops[
            Precision.BF16 if Precision.BF16 in device.flops else Precision.FP16
        ]
        rate = peak * software.attention
        if software.attention_flops:
            rate = min(rate, software.attention_flops)
        forward = flops / (rate * sustained_rates.flash_forward)
        backward = (
            _FLASH_BACKWARD_PRODUCTS * flops / (rate * sustained_rates.flash_backward)
        )
        return forward, backward
    square = software.square * groups * own.sequence * step.sequence
    scores = (own.sequence, step.sequence, model.head_dim, groups)
    values = (own.sequence, model.head_dim, step.sequence, groups)
    product_seconds = _half_product_seconds(
        scores, step, device
    ) + _half_product_seconds(values, step, device)
    return (
        product_seconds + streamed_seconds(square * _SQUARE_FORWARD, device),
        2 * product_seconds + streamed_seconds(square * _SQUARE_BACKWARD, device),
    )


def _looked_at(step: TrainStep) -> float:
    """Return how many tokens a query attends to, as the mean over layers and positions."""
    model = step.model
    full_tokens = step.sequence * _CAUSAL
    if not model.window or model.window >= step.sequence:
        return full_tokens
    near = model.window * (1 - _CAUSAL * model.window / step.sequence)
    window_share = model.window_layers / model.layers
    return window_share * near + (1 - window_share) * full_tokens


def _half_product_seconds(one: Product, step: TrainStep, device: Device) -> float:
    """Return the seconds of a matrix product in at least 16 bits, even if the other
    products of the step use fewer bits."""
    rows, columns, inner, groups = one
    wide = step.precision if step.precision.bytes >= 2 else Precision.BF16
    return _held_seconds(one, wide, device)


def ends_seconds(
    step: TrainStep, layout: TrainLayout, device: Device, software: Software
) -> tuple[Pass, Pass]:
    """Return the time of the output layer with its loss, and the time of the input
    embedding, each forward and backward together.

    Unit: seconds of one micro batch. Both are split over the tensor-parallel GPUs.
    """
    own_share = share(step, layout)
    vocab = -(-step.model.vocab // layout.tensor)
    hidden = step.model.hidden
    trained = 2 if step.state.gradient else 1
    product = _half_product_seconds((own_share.tokens, vocab, hidden, 1), step, device)
    product += trained * _half_product_seconds(
        (own_share.tokens, hidden, vocab, 1), step, device
    )
    loss = streamed_seconds(
        float(own_share.tokens) * vocab * software.logit_bytes, device
    )
    looked_up = streamed_seconds(own_share.tokens * hidden * _EMBEDDING_BYTES, device)
    return (
        Pass(matmul=product, attention=0.0, elementwise=loss),
        Pass(matmul=0.0, attention=0.0, elementwise=looked_up),
    )


# a number of it: read, written, and its gradient added up
_EMBEDDING_BYTES: Final = 12.0
