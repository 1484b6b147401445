"""Activations that the forward pass keeps for the backward pass, layer by layer.

Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4, adapted to what
Megatron-LM and Transformer Engine keep: the inputs and outputs of both norms, the
inputs of each matrix product, and dropout masks. With grouped queries, a copy separates
the queries from the joint product.
"""

from math import ceil
from typing import Final

from corral.catalog.overheads import overhead
from corral.catalog.precisions import Precision
from corral.perf.layout import Recompute, TrainLayout, TrainStep

MASK_BYTES: Final = 1.0  # of one element
WIDE_BYTES: Final = 4.0  # a norm that is not fused computes in fp32, and keeps that
SCORE_BYTES: Final = 4.0  # the router's scores are kept in fp32


def micro_tokens(step: TrainStep, layout: TrainLayout) -> int:
    """Return the tokens of one micro batch on one GPU; context parallelism divides the
    sequence."""
    return layout.micro_batch * ceil(step.sequence / layout.context)


def cut(layout: TrainLayout) -> int:
    """Return the number of GPUs over which sequence parallelism divides the activations
    between the matrix products; 1 without it."""
    return layout.tensor if layout.sequence_parallel else 1


def element(step: TrainStep) -> float:
    """Return the bytes of one number of an activation."""
    return 4.0 if step.precision in (Precision.FP32, Precision.TF32) else 2.0


def operand(step: TrainStep) -> float:
    """Return the bytes of one number that is kept as an operand of a matrix product;
    one byte in fp8."""
    return 1.0 if step.precision in (Precision.FP8, Precision.FP4) else element(step)


def layer_input(step: TrainStep, layout: TrainLayout) -> float:
    """Return the bytes of one layer's input for one micro batch."""
    return element(step) * micro_tokens(step, layout) * step.model.hidden / cut(layout)


def kept_by_layer(
    step: TrainStep,
    layout: TrainLayout,
    *,
    has_experts: bool,
    recompute: Recompute | None = None,
) -> float:
    """Return the bytes that one layer keeps of one micro batch, on one GPU.
    `has_experts`: it is a layer of experts. `recompute`: used in place of the layout's
    recomputation, if given."""
    chosen = layout.recompute if recompute is None else recompute
    if chosen is Recompute.FULL:
        return layer_input(step, layout)
    if chosen is Recompute.ALTERNATE:
        return _alternate(step, layout, has_experts=has_experts)
    norms = (
        (element(step) + operand(step)) * 2 / element(step) * layer_input(step, layout)
    )
    masks = (
        2 * MASK_BYTES / element(step) * layer_input(step, layout)
        if step.dropout
        else 0.0
    )
    mlp = (
        _expert_mlp_bytes(step, layout)
        if has_experts
        else _dense_mlp_bytes(step, layout)
    )
    core = 0.0 if chosen is Recompute.SELECTIVE else scores(step, layout)
    if not step.fused:
        norms += 2 * WIDE_BYTES / element(step) * layer_input(step, layout)
    return norms + masks + _attention(step, layout) + core + mlp


def _alternate(step: TrainStep, layout: TrainLayout, *, has_experts: bool) -> float:
    """Return the bytes that a layer keeps with alternate recomputation: its input, the
    output of attention, and the results of every second of its seven matrix products.
    These are queries, values, and the first and last product of the MLP. Source:
    torchtitan, activation_checkpoint.py."""
    model, width = step.model, element(step) * micro_tokens(step, layout)
    query, values = model.heads * model.head_dim, model.kv_heads * model.head_dim
    experts = model.experts
    wide = experts.ffn * experts.per_token if experts and has_experts else model.ffn
    inside = width * (2 * query + values + wide) / layout.tensor
    return inside + 2 * layer_input(step, layout)


def _attention(step: TrainStep, layout: TrainLayout) -> float:
    """Return the bytes that attention keeps: queries, keys, values, and its output,
    which is the operand of the last product."""
    model = step.model
    width = element(step) * micro_tokens(step, layout) / layout.tensor
    if model.latent is not None:
        return _latent_attention(step, layout)
    query = model.heads * model.head_dim
    keys = (
        2
        * model.kv_heads
        * model.head_dim
        * layout.tensor
        / min(layout.tensor, model.kv_heads)
    )
    joint = query + keys
    rotated = 0.0 if model.positions else query + keys / 2
    copied = query if model.positions and model.kv_heads < model.heads else 0.0
    return width * (joint + rotated + copied + query)


def _latent_attention(step: TrainStep, layout: TrainLayout) -> float:
    """Return the bytes that latent attention keeps. Each GPU that shares a layer holds
    the compressed vectors in full, before and after their norm."""
    model, latent = step.model, step.model.latent
    assert latent is not None
    tokens = element(step) * micro_tokens(step, layout)
    compressed_width = 2 * (latent.query_rank + latent.kv_rank) + latent.rope_dim
    key = model.head_dim + latent.rope_dim
    elements_per_head = (
        2 * key + (model.head_dim + latent.value_dim) + key + 2 * latent.value_dim
    )
    return tokens * (
        compressed_width / cut(layout) + model.heads * elements_per_head / layout.tensor
    )


def scores(step: TrainStep, layout: TrainLayout) -> float:
    """Return the bytes of the attention scores, quadratic in the sequence, that are
    kept without a flash kernel: after the softmax, and with dropout also its mask and
    its output."""
    if step.has_flash:
        return 0.0
    element_bytes = element(step) + (
        MASK_BYTES + element(step) if step.dropout else 0.0
    )
    pairs = micro_tokens(step, layout) * step.sequence
    return element_bytes * pairs * step.model.heads / layout.tensor


def _mlp_element_bytes(step: TrainStep) -> float:
    """Return the bytes that an MLP keeps for each of its inner numbers. It keeps the
    number before the nonlinearity (two numbers if the MLP is gated), the operand of the
    next product, and a number between gate and nonlinearity if these are not fused."""
    kept_widths = (2 if step.model.is_gated else 1) + (
        step.model.is_gated and not step.fused
    )
    return kept_widths * element(step) + operand(step)


def _dense_mlp_bytes(step: TrainStep, layout: TrainLayout) -> float:
    """Return the bytes that a dense MLP keeps, before the nonlinearity (twice as wide
    if it is gated) and after it."""
    tokens = micro_tokens(step, layout) / layout.tensor
    return tokens * step.model.ffn * _mlp_element_bytes(step)


def _expert_mlp_bytes(step: TrainStep, layout: TrainLayout) -> float:
    """Return the bytes that a layer of experts keeps: scores of the router; tokens sent
    to experts, their inner activations, and the results; and the shared experts. The
    fullest GPU gets more than its share of tokens."""
    model, experts = step.model, step.model.experts
    assert experts is not None
    tokens = micro_tokens(step, layout) / cut(layout)
    router = SCORE_BYTES * tokens * experts.count
    dispatched_tokens = tokens * experts.per_token * overhead().expert_load
    wide = _mlp_element_bytes(step)
    inside = dispatched_tokens * experts.ffn * wide
    routed = (
        dispatched_tokens
        * layout.expert_tensor
        * model.hidden
        * (operand(step) + element(step))
    )
    shared_bytes = (
        micro_tokens(step, layout) / layout.tensor * experts.shared * experts.ffn * wide
    )
    return router + inside + routed + shared_bytes


def passing(step: TrainStep, layout: TrainLayout, *, has_experts: bool) -> float:
    """Return the temporary bytes of the backward pass of one layer. They are the
    gradients inside its MLP, the gradients of its input, the gathered input of sequence
    parallelism, and the layer's own activations if they are recomputed."""
    model = step.model
    tokens = micro_tokens(step, layout)
    recompute_bytes = 0.0
    if layout.recompute in (Recompute.ALTERNATE, Recompute.FULL):
        recompute_bytes = kept_by_layer(
            step, layout, has_experts=has_experts, recompute=Recompute.NONE
        )
    elif layout.recompute is Recompute.SELECTIVE:
        recompute_bytes = scores(step, layout)
    inside = _mlp_gradient_elements(step, layout, has_experts=has_experts)
    return (
        recompute_bytes
        + element(step) * (inside + 2 * tokens * model.hidden)
        + scores(step, layout)
    )


def _mlp_gradient_elements(
    step: TrainStep, layout: TrainLayout, *, has_experts: bool
) -> float:
    """Return the number of elements of the gradients inside the MLP."""
    model, tokens = step.model, micro_tokens(step, layout)
    wide = 3 if model.is_gated else 2
    if not has_experts or model.experts is None:
        return wide * tokens * model.ffn / layout.tensor
    dispatched_tokens = tokens / cut(layout) * model.experts.per_token
    return dispatched_tokens * (wide * model.experts.ffn + model.hidden)
