"""The formats in which numbers are stored and multiplied."""

from enum import StrEnum
from typing import Final


class Precision(StrEnum):
    """One number format. `bytes` does not include the block scales of fp8 and fp4; the
    code that uses these formats adds them."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"
    INT4 = "int4"

    @property
    def bytes(self) -> float:
        """Return the bytes that one number takes."""
        return _BYTES[self]


_BYTES: Final = {
    Precision.FP32: 4.0,
    Precision.TF32: 4.0,
    Precision.BF16: 2.0,
    Precision.FP16: 2.0,
    Precision.FP8: 1.0,
    Precision.INT8: 1.0,
    Precision.FP4: 0.5,
    Precision.INT4: 0.5,
}
