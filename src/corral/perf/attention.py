"""Seconds of attention: over a prompt, and of new tokens over what is kept of the old
ones."""

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
    """One layer's attention of `tokens` new tokens that see `context` tokens each on
    average (half of a prompt that is computed whole). Unit: seconds.

    Both products of a fused kernel, 4 FLOPs for each pair and each number of a head.
    Source: FlashAttention-2, arXiv:2307.08691, section 4; the share: of its figure 4,
    forward.
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
    """One layer's attention of one new token of each of `sequences` over the `context`
    tokens that are kept of it: the cache is read once. `share`: of the memory's rate
    that the kernel reaches. `reread`: how much of a kept head each further query head
    that shares it reads again. Unit: seconds."""
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
    """Tokens of `context` that a new one looks at, on average over the layers: some may
    look back a window only."""
    if not model.window or not model.window_layers:
        return context
    window_share = model.window_layers / model.layers
    return (1 - window_share) * context + window_share * min(context, model.window)


def kv_numbers(model: Model, *, tensor: int = 1) -> int:
    """Numbers that one layer keeps of one token on one of `tensor` GPUs. A key-value
    head is kept whole, and a latent vector on each GPU."""
    if model.latent is not None:
        return model.latent.kv_rank + model.latent.rope_dim
    return 2 * model.head_dim * -(-model.kv_heads // tensor)


def pair_numbers(model: Model) -> int:
    """Numbers of one head that a query and a token that it looks at are multiplied in:
    of a key, and of a value."""
    if model.latent is not None:
        return model.head_dim + model.latent.rope_dim + model.latent.value_dim
    return 2 * model.head_dim


def _half_precision(device: Device) -> Precision:
    return Precision.BF16 if Precision.BF16 in device.flops else Precision.FP16
