"""Precisions in which a GPU can train and serve: requests against its abilities."""

from typing import Final

from corral.catalog.devices import Device, device
from corral.catalog.models import Model
from corral.catalog.precisions import Precision
from corral.domain.errors import SpecInvalid
from corral.perf.engines import InferenceEngine, engine_said
from corral.plan.parse.models import precision_said

INTEGERS: Final = (Precision.INT8, Precision.INT4)
AS_NARROW: Final = {Precision.FP8: Precision.INT8, Precision.FP4: Precision.INT4}
TRAINS_INT8: Final = "Google"  # AQT on TPUs: github.com/google/aqt
USUAL: Final = ("a100-sxm-80", "h100-sxm", "h200-sxm", "b200", "mi300x")  # that are named instead


class Unsuited(SpecInvalid):
    """A GPU has not what is asked of it. `why`: without its name."""

    def __init__(self, used: Device, why: str, *, hint: str) -> None:
        super().__init__(f"{used.title} {why}", hint=hint)
        self.why = why


def half(used: Device) -> Precision:
    """Return the usual precision: bf16, or fp16 on a GPU without it."""
    return Precision.BF16 if Precision.BF16 in used.flops else Precision.FP16


def half_told(said: str, used: Device) -> tuple[str, ...]:
    """Return a note that it is not bf16, if nothing was requested."""
    if said or half(used) is Precision.BF16:
        return ()
    return (f"numbers in fp16, as {used.title} has no bf16: --precision says others",)


def trained_in(said: str, used: Device) -> Precision:
    """Return the precision in which a run multiplies; "" is the usual one. Raises: NotFound,
    Unsuited."""
    asked = precision_said(said) if said else half(used)
    if asked in INTEGERS and not (asked is Precision.INT8 and used.vendor == TRAINS_INT8):
        hint = f"give --precision {half(used)}, or --lora beside weights that stay in {asked}"
        raise Unsuited(used, f"trains nothing in {asked}", hint=hint)
    return _had(asked, used, half(used))


def kept_in(said: str, used: Device, published: str = "") -> Precision:
    """Return the precision of weights that do not change, while serving or with adapters.

    Integers that the GPU lacks are unpacked and multiplied in 16 bits (GPTQ, AWQ,
    bitsandbytes). Other floats must be supported by the GPU. The default is the `published`
    precision, or an integer of the same width on a GPU without it. Raises: NotFound,
    Unsuited.
    """
    if not said and published:
        own = Precision(published)
        return own if own in used.flops else AS_NARROW.get(own, half(used))
    asked = precision_said(said) if said else half(used)
    return asked if asked in INTEGERS else _had(asked, used, AS_NARROW.get(asked, half(used)))


def published_told(said: str, model: Model) -> tuple[str, ...]:
    """Return a note that weights keep their published precision, unless the request names
    another."""
    if said or not model.published:
        return ()
    return (f"weights in {model.published}, as {model.name} is published: --precision says others",)


def served_by(said: str, used: Device) -> InferenceEngine:
    """Raises: NotFound, Unsuited."""
    asked = engine_said(said)
    if asked.vendors and used.vendor not in asked.vendors:
        why = f"runs no {asked.name}, which is for {' and '.join(asked.vendors)}"
        raise Unsuited(used, why, hint="give --engine vllm, or a GPU of theirs")
    return asked


def _had(asked: Precision, used: Device, near: Precision) -> Precision:
    if asked in used.flops:
        return asked
    with_it = [name for name in USUAL if asked in device(name).flops]
    others = f", or a GPU that has it: {', '.join(with_it)}" if with_it else ""
    why = f"has no {asked}: it has {', '.join(used.flops)}"
    raise Unsuited(used, why, hint=f"give --precision {near}{others}")
