"""Check whether a GPU supports the precisions that a request needs for training and
serving."""

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
# that are named instead
USUAL: Final = ("a100-sxm-80", "h100-sxm", "h200-sxm", "b200", "mi300x")


class Unsuited(SpecInvalid):
    """Error: the GPU lacks what a request needs. `why`: the reason, without the GPU's
    name."""

    def __init__(self, used: Device, why: str, *, hint: str) -> None:
        super().__init__(f"{used.title} {why}", hint=hint)
        self.why = why


def half(used: Device) -> Precision:
    """Return the GPU's usual 16-bit precision: bf16, or fp16 on a GPU without bf16."""
    return Precision.BF16 if Precision.BF16 in used.flops else Precision.FP16


def half_remarks(said: str, used: Device) -> tuple[str, ...]:
    """Return a note that numbers are in fp16 because the GPU has no bf16. It is empty
    if the request names a precision or the GPU has bf16."""
    if said or half(used) is Precision.BF16:
        return ()
    return (
        f"the precision is fp16, because {used.title} does not support bf16; change it with "
        "--precision",
    )


def trained_in(said: str, used: Device) -> Precision:
    """Return the precision of matrix products in a training run; "" selects the usual
    one.

    Raises: NotFound for an unknown precision, Unsuited for one that the GPU cannot
    train in.
    """
    precision = precision_said(said) if said else half(used)
    if precision in INTEGERS and not (
        precision is Precision.INT8 and used.vendor == TRAINS_INT8
    ):
        hint = f"set --precision {half(used)}, or add --lora: frozen weights may be {precision}"
        raise Unsuited(used, f"does not support training in {precision}", hint=hint)
    return _require_precision(precision, used, half(used))


def kept_in(said: str, used: Device, published: str = "") -> Precision:
    """Return the precision of weights that do not change, while serving or with
    adapters.

    Integers that the GPU lacks are unpacked and multiplied in 16 bits (GPTQ, AWQ,
    bitsandbytes). Other floats must be supported by the GPU. If the request names no
    precision, the default is the `published` one, or an integer of the same width on a
    GPU without it. Raises: NotFound, Unsuited.
    """
    if not said and published:
        precision = Precision(published)
        return (
            precision
            if precision in used.flops
            else AS_NARROW.get(precision, half(used))
        )
    half_precision = precision_said(said) if said else half(used)
    return (
        half_precision
        if half_precision in INTEGERS
        else _require_precision(
            half_precision, used, AS_NARROW.get(half_precision, half(used))
        )
    )


def published_remarks(said: str, model: Model) -> tuple[str, ...]:
    """Return a note that the plan uses the precision in which the model's weights were
    published; no note if the request names a precision (`said`), or if the published
    precision is unknown."""
    if said or not model.published:
        return ()
    return (
        f"weights are in {model.published}, the published precision of {model.name}; change it "
        "with --precision",
    )


def served_by(said: str, used: Device) -> InferenceEngine:
    """Return the inference engine of that name for this GPU.

    Raises: NotFound for an unknown engine, Unsuited if it does not run on the GPU.
    """
    inference_engine = engine_said(said)
    if inference_engine.vendors and used.vendor not in inference_engine.vendors:
        reason = (
            f"does not run {inference_engine.name}, which supports only "
            f"{' and '.join(inference_engine.vendors)}"
        )
        raise Unsuited(used, reason, hint="set --engine vllm, or choose another --gpu")
    return inference_engine


def _require_precision(asked: Precision, used: Device, near: Precision) -> Precision:
    if asked in used.flops:
        return asked
    with_it = [name for name in USUAL if asked in device(name).flops]
    alternatives_text = (
        f", or choose a GPU that supports it: {', '.join(with_it)}" if with_it else ""
    )
    reason = f"does not support {asked}, only {', '.join(used.flops)}"
    raise Unsuited(used, reason, hint=f"set --precision {near}{alternatives_text}")
