"""The request of plan model: does a model fit, with plain values."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from corral.catalog.devices import device
from corral.plan.bounds import COUNT, GPUS, Length, check
from corral.plan.fit.plan import FitUse, fitting
from corral.plan.fit.report import report
from corral.plan.gpu_support import half, half_remarks, kept_in, published_remarks
from corral.plan.parse.models import model_said, precision_said
from corral.plan.report import PlannerReport


@dataclass(frozen=True, slots=True)
class FitRequest:
    """Whether a model fits.

    Attributes:
        model: Name of the model, the file (or text) of its config.json, or
            layers=32,hidden=4096,...
        gpu: Type of GPU.
        context: Length of a sequence, in tokens.
        batch: Number of sequences that are served at the same time.
        precision: Precision of served or frozen weights: fp8, int4, ...; the default is
            the published precision.
        kv_precision: Precision of the keys and values in the cache while serving: fp8,
            ...; the default is 16 bits.
        gpus: Maximum number of GPUs.
        rank: Rank of the LoRA matrices.
    """

    model: str
    _: KW_ONLY
    gpu: str = "h100-sxm"
    context: Length = 8_192
    batch: Annotated[int, COUNT] = 16
    precision: str = ""
    kv_precision: str = ""
    gpus: Annotated[int | None, GPUS] = None
    rank: Annotated[int, COUNT] = 16


def answer(request: FitRequest) -> PlannerReport:
    """Return the report on whether the model fits.

    Raises: NotFound, ModelRefused, SpecInvalid for an unknown or impossible value.
    """
    check(request)
    gpu_device = device(request.gpu)
    cache_precision, model = request.kv_precision, model_said(request.model)
    ask = FitUse(
        model=model,
        device=gpu_device,
        context=request.context,
        batch=request.batch,
        precision=kept_in(request.precision, gpu_device, model.published),
        trained=kept_in(request.precision, gpu_device),
        kv_precision=precision_said(cache_precision)
        if cache_precision
        else half(gpu_device),
        gpus=request.gpus,
        rank=request.rank,
    )
    remarks = (
        *published_remarks(request.precision, model),
        *half_remarks(request.precision, gpu_device),
    )
    return report(fitting(ask), assumed=remarks)
