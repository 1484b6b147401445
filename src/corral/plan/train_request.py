"""plan train: how a run is best laid out, asked in plain words."""

from dataclasses import KW_ONLY, dataclass
from math import isfinite
from typing import Final

from corral.catalog.devices import Device, device
from corral.catalog.links import link
from corral.catalog.prices import Prices, prices
from corral.domain.errors import NotFound, SpecInvalid
from corral.perf.software import DEFAULT, software
from corral.plan.report import Report
from corral.plan.said import model_said, precision_said
from corral.plan.train import Lever, Trained, search, with_device
from corral.plan.train_layouts import TrainAsk
from corral.plan.train_report import report

OTHERS: Final = ("a100-sxm-80", "h100-sxm", "h200-sxm", "b200", "mi300x")


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """A training run.

    Attributes:
        model: Its name, the file (or text) of its config.json, or layers=32,hidden=4096,...
        gpus: How many GPUs.
        gpu: Of which type.
        tokens: To be trained on, in all.
        sequence: Tokens of a sequence.
        batch: Sequences of a step; 0: so many as come to about 4 million tokens.
        precision: Of the products: bf16, fp16, fp8.
        lora: Train adapters beside a frozen model.
        rank: Of LoRA's matrices.
        library: megatron-core, pytorch, torchtitan, ...
        fabric: What joins the nodes; else what is usual for the GPU.
        tensor: Tensor parallelism of just this size; 0 leaves it to the search.
        pipeline: The same for pipeline stages.
        context: The same for context parallelism.
        no_shard: Leave ZeRO-3 and FSDP out.
        usd_per_gpu_hour: What a GPU costs; else the median of the catalog's prices.
    """

    model: str
    _: KW_ONLY
    gpus: int
    gpu: str = "h100-sxm"
    tokens: float = 1e12
    sequence: int = 4_096
    batch: int = 0
    precision: str = "bf16"
    lora: bool = False
    rank: int = 16
    library: str = DEFAULT
    fabric: str = ""
    tensor: int = 0
    pipeline: int = 0
    context: int = 0
    no_shard: bool = False
    usd_per_gpu_hour: float | None = None


def answer(request: TrainRequest, *, listed: Prices | None = None) -> Report:
    """By the prices that are `listed`, else by the catalog's.

    Raises: NotFound, ModelRefused, SpecInvalid, NoLayout.
    """
    found = search(_ask(request))
    price, told = _price(request, found.ask.device, listed or prices())
    return report(found, price_gpu_hour=price, others=tuple(_others(found)), assumed=told)


def _ask(request: TrainRequest) -> TrainAsk:
    for name in ("gpus", "sequence", "rank", "tokens"):
        value = getattr(request, name)
        if not (value >= 1 and isfinite(value)):
            raise SpecInvalid(f"{name} is {value:g}", hint="give a number from 1 on")
    for name in ("batch", "tensor", "pipeline", "context"):
        if getattr(request, name) < 0:
            raise SpecInvalid(f"{name} is below 0", hint="give a number, or 0 for any")
    usd = request.usd_per_gpu_hour
    if usd is not None and not (usd > 0 and isfinite(usd)):
        raise SpecInvalid(f"{usd:g} USD a GPU-hour", hint="give a number above 0")
    return TrainAsk(
        model=model_said(request.model),
        device=device(request.gpu),
        gpus=request.gpus,
        tokens=request.tokens,
        sequence=request.sequence,
        global_batch=request.batch,
        precision=precision_said(request.precision),
        frozen=request.lora,
        rank=request.rank,
        by=software(request.library).name,
        fabric=link(request.fabric) if request.fabric else None,
        tensor=request.tensor,
        pipeline=request.pipeline,
        context=request.context,
        may_shard=not request.no_shard,
    )


def _price(
    request: TrainRequest, used: Device, listed: Prices
) -> tuple[float | None, tuple[str, ...]]:
    """USD a GPU-hour, and what was taken for it."""
    if request.usd_per_gpu_hour is not None:
        return request.usd_per_gpu_hour, ()
    try:
        usual = listed.typical(used.name)
    except NotFound:
        return None, (f"no price of {used.title} is known: --usd-per-gpu-hour",)
    return usual, (f"{usual:.2f} USD a GPU-hour, the median on demand: --usd-per-gpu-hour",)


def _others(found: Trained) -> list[Lever]:
    own = found.ask.device.name
    levers = (with_device(found, device(name)) for name in OTHERS if name != own)
    return [one for one in levers if one is not None]
