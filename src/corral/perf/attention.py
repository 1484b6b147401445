"""Seconds of attention: over a prompt, and of new tokens over the cached keys and
values."""

from typing import Final

from corral.catalog.devices import Device
from corral.catalog.models import Model
from corral.catalog.precisions import Precision
from corral.perf.kernels import kernels

# of the rate of matrix products that a fused attention kernel reaches
_FLASH: Final = 0.65


def prompt_attention_seconds(
    model: Model, device: Device, *, tokens: float, context: float, tensor: int = 1
) -> float:
    """Return the seconds of one layer's attention for `tokens` new tokens that attend
    to `context` tokens each on average (half of a prompt that is computed whole).

    It covers both products of a fused kernel, with 4 FLOPs for each pair of tokens and
    each number of a head. Source: FlashAttention-2, arXiv:2307.08691, section 4; the
    share of the peak is from its figure 4, forward.
    """
    heads = -(-model.heads // tensor)
    flops = 2.0 * tokens * seen(model, context) * heads * pair_numbers(model)
    own_kernels = kernels(device.architecture)
    rate = device.flops[_half_precision(device)] * own_kernels.matmul * _FLASH
    return flops / rate + own_kernels.seconds


def cache_attention_seconds(
    model: Model,
    device: Device,
    *,
    sequences: float,
    context: float,
    kv_bytes: float = 2.0,
    tensor: int = 1,
    share: float = 1.0,
    reread: float = 0.0,
) -> float:
    """Return the seconds of one layer's attention for one new token of each of
    `sequences`, over `context` cached tokens each; the cache is read once.

    Args:
        share: share of the memory's rate that the kernel reaches.
        reread: how much of a cached head each further query head that shares it reads
            again.
    """
    own_kernels = kernels(device.architecture)
    numbers: float = kv_numbers(model, tensor=tensor)
    if model.latent is None:
        numbers *= 1 + reread * (model.heads // model.kv_heads - 1)
    rate = device.memory_bytes_per_s * own_kernels.memory * share
    return (
        sequences * seen(model, context) * numbers * kv_bytes / rate
        + own_kernels.seconds
    )


def seen(model: Model, context: float) -> float:
    """Return how many of `context` tokens a new token attends to, as the mean over the
    layers. Some layers may attend only to a window of recent tokens."""
    if not model.window or not model.window_layers:
        return context
    window_share = model.window_layers / model.layers
    return (1 - window_share) * context + window_share * min(context, model.window)


def kv_numbers(model: Model, *, tensor: int = 1) -> int:
    """Return how many numbers one layer caches for one token on one of `tensor` GPUs. A
    key-value head is not divided, and each GPU holds the latent vector in full."""
    if model.latent is not None:
        return model.latent.kv_rank + model.latent.rope_dim
    return 2 * model.head_dim * -(-model.kv_heads // tensor)


def pair_numbers(model: Model) -> int:
    """Return the length of one head's key and value together: a query and a token that
    it attends to are multiplied over these numbers."""
    if model.latent is not None:
        return model.head_dim + model.latent.rope_dim + model.latent.value_dim
    return 2 * model.head_dim


def _half_precision(device: Device) -> Precision:
    return Precision.BF16 if Precision.BF16 in device.flops else Precision.FP16
