"""Memory of Megatron-LM's tests of T5, which has an encoder, and a decoder that attends
to it.

Source: Raffel et al. 2020, arXiv:1910.10683, section 2.1.
"""

from dataclasses import replace
from typing import Final

from corral.catalog.models import Model
from corral.perf.activations import (
    MASK_BYTES,
    cut,
    element,
    kept_by_layer,
    micro_tokens,
)
from corral.perf.layout import TrainLayout, TrainStep
from corral.perf.memory import TrainMemory, training_memory

ENCODED: Final = 512  # tokens of the encoder, if the row has no number
DECODED: Final = 128  # of the decoder


def t5_memory(
    model: Model,
    decoder_layers: int,
    step: TrainStep,
    layout: TrainLayout,
    *,
    architecture: str,
) -> TrainMemory:
    """Return the memory of one GPU for T5. `model`: has the layers of encoder and
    decoder together. `step`: its `sequence` is the decoder's sequence length. Raises:
    ValueError if the layout has pipeline stages or is impossible."""
    if layout.pipeline > 1:
        raise ValueError("an encoder with a decoder cannot have pipeline stages")
    base = training_memory(
        replace(step, model=model), layout, architecture=architecture
    )
    encoding = replace(step, sequence=ENCODED)
    encoder = kept_by_layer(encoding, layout, has_experts=False)
    decoder = kept_by_layer(step, layout, has_experts=False)
    crossing = decoder_layers * _cross_attention_bytes(step, encoding, layout)
    kept_bytes = (
        (model.layers - decoder_layers) * encoder + decoder_layers * decoder + crossing
    )
    own_bytes = decoder_layers * (
        4 * model.hidden**2 / layout.tensor + 4 * model.hidden
    )
    sizes = step.state
    return replace(
        base,
        weights=base.weights + sizes.weight * own_bytes,
        gradients=base.gradients + sizes.gradient * own_bytes,
        optimizer=base.optimizer + sizes.optimizer * own_bytes,
        activations=kept_bytes,
    )


def t5_steps(
    encoder_layers: int, decoder_layers: int, step: TrainStep
) -> tuple[TrainStep, TrainStep]:
    """Return the training step of the encoder and that of the decoder. Cross-attention
    counts as half a layer more in each decoder layer."""
    model = step.model
    crossing = decoder_layers + -(-decoder_layers // 2)
    return (
        replace(step, model=replace(model, layers=encoder_layers), sequence=ENCODED),
        replace(step, model=replace(model, layers=crossing), sequence=DECODED),
    )


def _cross_attention_bytes(
    decoding: TrainStep, encoding: TrainStep, layout: TrainLayout
) -> float:
    """Return the bytes of activations of cross-attention in one layer: a norm with its
    input and output and a mask, queries and the output, and keys and values of the
    whole encoded input. Without a flash kernel, the scores of each pair with their mask
    are added."""
    model, size = decoding.model, element(decoding)
    decoder_tokens, encoder_tokens = (
        micro_tokens(decoding, layout),
        micro_tokens(encoding, layout),
    )
    norm_bytes = decoder_tokens * model.hidden * (2 * size + MASK_BYTES) / cut(layout)
    projection_bytes = (
        2 * size * (decoder_tokens + encoder_tokens) * model.hidden / layout.tensor
    )
    if decoding.has_flash:
        return norm_bytes + projection_bytes
    pairs = decoder_tokens * encoding.sequence * model.heads / layout.tensor
    return norm_bytes + projection_bytes + (2 * size + MASK_BYTES) * pairs
