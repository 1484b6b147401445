"""Precisions of weights and caches in usual notation: "Q4_K_M", "nvfp4 weights, fp8 KV
cache"."""

import re
from dataclasses import dataclass
from typing import Final

from corral.catalog.devices import Device
from corral.catalog.precisions import Precision

# Bits of a weight on average, scales included. Source: llama.cpp,
# tools/quantize/README.md.
GGUF_BITS: Final = {
    "q2_k": 3.0,
    "q3_k": 3.9,
    "q4_0": 4.55,
    "q4_k": 4.85,
    "q5_0": 5.5,
    "q5_k": 5.7,
    "q6_k": 6.6,
    "q8_0": 8.5,
}
_FOUR_BITS: Final = re.compile(r"4[- ]?bit|int4|awq|gptq|w4a16|q4f16|nf4|bnb")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPrecision:
    """Precisions that a server uses. `precision`: that of the matrix products.
    `weight_bytes` and `kv_bytes`: bytes of one stored weight, and of one number in the
    cache. `remarks`: the assumptions."""

    precision: Precision
    weight_bytes: float
    kv_bytes: float
    remarks: tuple[str, ...] = ()


def said_precision(text: str, device: Device, *, narrow_cache: bool) -> StoredPrecision:
    """Return the precision in the text about a server; 16 bits if it names none.

    With `narrow_cache`, the cache is in 8 bits if the weights are in 8 bits or fewer,
    as in TensorRT-LLM. Without it, the text itself has to name an fp8 cache.
    """
    lowercase_text = text.lower()
    if "see submission" in lowercase_text or "best" in lowercase_text:
        return _narrowest(device)
    stored_precision = _parse_stored_precision(lowercase_text)
    if "kv" in lowercase_text and not narrow_cache:
        narrow_cache = bool(re.search(r"fp8[^,;]*kv|kv[^,;]*fp8", lowercase_text))
    narrow = (
        narrow_cache
        and stored_precision.weight_bytes <= 1.0
        and stored_precision.precision.bytes <= 1.0
    )
    return StoredPrecision(
        precision=stored_precision.precision,
        weight_bytes=stored_precision.weight_bytes,
        kv_bytes=1.0 if narrow else 2.0,
        remarks=stored_precision.remarks,
    )


def _parse_stored_precision(low: str) -> StoredPrecision:
    half = Precision.FP16
    for name, bits in GGUF_BITS.items():
        if name in low:
            return StoredPrecision(precision=half, weight_bytes=bits / 8, kv_bytes=2.0)
    if re.search(r"(nv|mx)?fp4", low):
        return StoredPrecision(precision=Precision.FP4, weight_bytes=0.5, kv_bytes=2.0)
    if _FOUR_BITS.search(low):
        return StoredPrecision(precision=half, weight_bytes=0.5, kv_bytes=2.0)
    if "fp8" in low:
        return StoredPrecision(precision=Precision.FP8, weight_bytes=1.0, kv_bytes=2.0)
    if re.search(r"int8|w8a8|8[- ]?bit", low):
        return StoredPrecision(precision=Precision.INT8, weight_bytes=1.0, kv_bytes=2.0)
    if re.search(r"fp32|f32", low):
        return StoredPrecision(precision=Precision.FP32, weight_bytes=4.0, kv_bytes=4.0)
    remarks = () if re.search(r"16|half", low) else ("16 bits a number",)
    return StoredPrecision(
        precision=half, weight_bytes=2.0, kv_bytes=2.0, remarks=remarks
    )


def _narrowest(device: Device) -> StoredPrecision:
    """Return the precision of MLPerf submissions: the narrowest floats of the device,
    and a cache in fp8."""
    for precision in (Precision.FP4, Precision.FP8):
        if precision in device.flops:
            size = precision.bytes
            remarks = (f"weights in {precision}, cache in fp8",)
            return StoredPrecision(
                precision=precision, weight_bytes=size, kv_bytes=1.0, remarks=remarks
            )
    remarks = ("16 bits a number",)
    return StoredPrecision(
        precision=Precision.FP16, weight_bytes=2.0, kv_bytes=2.0, remarks=remarks
    )
