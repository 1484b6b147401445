"""plan model: does it fit, asked in plain words."""

from dataclasses import KW_ONLY, dataclass

from corral.catalog.devices import device
from corral.domain.errors import SpecInvalid
from corral.plan.fit import Ask, fitting
from corral.plan.fit_report import report
from corral.plan.report import Report
from corral.plan.said import model_said, precision_said


@dataclass(frozen=True, slots=True)
class FitRequest:
    """Whether a model fits.

    Attributes:
        model: Its name, the file (or text) of its config.json, or layers=32,hidden=4096,...
        gpu: The type of GPU.
        context: Tokens of a sequence.
        batch: Sequences that are served at once.
        precision: Of weights that are served or frozen: bf16, fp8, int4, ...
        kv_precision: Of the keys and values that are kept while serving.
        gpus: At most so many.
        rank: Of LoRA's matrices.
    """

    model: str
    _: KW_ONLY
    gpu: str = "h100-sxm"
    context: int = 8_192
    batch: int = 16
    precision: str = "bf16"
    kv_precision: str = "bf16"
    gpus: int | None = None
    rank: int = 16


def answer(request: FitRequest) -> Report:
    """Raises: NotFound, ModelRefused, SpecInvalid."""
    counts = {
        "context": request.context,
        "batch": request.batch,
        "gpus": request.gpus,
        "rank": request.rank,
    }
    for name, count in counts.items():
        if count is not None and count < 1:
            raise SpecInvalid(f"{name} is {count}", hint="give a number from 1 on")
    ask = Ask(
        model=model_said(request.model),
        device=device(request.gpu),
        context=request.context,
        batch=request.batch,
        precision=precision_said(request.precision),
        kv_precision=precision_said(request.kv_precision),
        gpus=request.gpus,
        rank=request.rank,
    )
    return report(fitting(ask))
