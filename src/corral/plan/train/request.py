"""plan train: a request for the best layout of a training run."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Final

from corral.catalog.devices import Device, device
from corral.catalog.prices import PriceList, prices
from corral.domain.errors import NotFound
from corral.perf.software import DEFAULT, software
from corral.plan.bounds import COUNT, TOKENS, Gpus, Length, NumberBound, Usd, check
from corral.plan.gpu_support import (
    INTEGERS,
    half,
    half_remarks,
    kept_in,
    published_remarks,
    trained_in,
)
from corral.plan.parse.fabrics import fabric_said
from corral.plan.parse.models import model_said
from corral.plan.report import PlannerReport
from corral.plan.train.layouts import TrainAsk
from corral.plan.train.plan import Lever, Trained, search, with_device
from corral.plan.train.report import report

ANY: Final = NumberBound(
    0, 1e6, hint="give a number up to 1,000,000, or 0 for any value"
)
OTHERS: Final = ("a100-sxm-80", "h100-sxm", "h200-sxm", "b200", "mi300x")


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """A training run.

    Attributes:
        model: Name of the model, the file (or text) of its config.json, or
            layers=32,hidden=4096,...
        gpus: Number of GPUs.
        gpu: Type of GPU.
        tokens: Number of tokens of the whole training, for example 1e12 or 15T.
        context: Length of a sequence, in tokens.
        batch: Sequences per step; with 0 the usual number, which the report shows.
        precision: Precision of matrix products or, with LoRA, of the frozen weights:
            fp8, ...; the default is bf16, or fp16 on GPUs without bf16.
        lora: Train LoRA adapters on a frozen model.
        rank: Rank of the LoRA matrices.
        library: Training library: megatron-core, pytorch, torchtitan, ...
        fabric: Network between nodes: ib-ndr, efa, spectrum-x, ..., or its rate for
            one GPU: 280 Gb/s; the default depends on the GPU.
        tensor: Size of tensor parallelism; with 0 the search chooses it.
        pipeline: Number of pipeline stages; with 0 the search chooses it.
        context_parallel: Size of context parallelism; with 0 the search chooses it.
        no_shard: Use neither ZeRO-3 nor FSDP.
        usd_per_gpu_hour: Price of a GPU-hour, in USD; the default is the median of the
            catalog's prices.
    """

    model: str
    _: KW_ONLY
    gpus: Gpus
    gpu: str = "h100-sxm"
    tokens: Annotated[float, TOKENS] = 1e12
    context: Length = 4_096
    batch: Annotated[int, ANY] = 0
    precision: str = ""
    lora: bool = False
    rank: Annotated[int, COUNT] = 16
    library: str = DEFAULT
    fabric: str = ""
    tensor: Annotated[int, ANY] = 0
    pipeline: Annotated[int, ANY] = 0
    context_parallel: Annotated[int, ANY] = 0
    no_shard: bool = False
    usd_per_gpu_hour: Usd = None


def answer(request: TrainRequest, *, listed: PriceList | None = None) -> PlannerReport:
    """Answer a request with the prices in `listed`, else with the catalog's.

    Raises: NotFound, ModelRefused, SpecInvalid, NoLayout.
    """
    trained = search(_ask_from_request(request))
    price, price_remarks = _gpu_hour_price(
        request, trained.ask.device, listed or prices()
    )
    if request.lora:
        price_remarks = (
            *published_remarks(request.precision, trained.ask.model),
            *price_remarks,
        )
    price_remarks = (
        *half_remarks(request.precision, trained.ask.device),
        *price_remarks,
    )
    return report(
        trained,
        price_gpu_hour=price,
        others=tuple(_other_gpu_levers(trained)),
        assumed=price_remarks,
    )


def _ask_from_request(request: TrainRequest) -> TrainAsk:
    check(request)
    gpu_device = device(request.gpu)
    precision_text, lora = request.precision, request.lora
    model = model_said(request.model)
    precision = (
        kept_in(precision_text, gpu_device, model.published)
        if lora
        else trained_in(precision_text, gpu_device)
    )
    return TrainAsk(
        model=model,
        device=gpu_device,
        gpus=request.gpus,
        tokens=request.tokens,
        sequence=request.context,
        global_batch=request.batch,
        precision=half(gpu_device) if lora and precision in INTEGERS else precision,
        frozen=lora,
        frozen_bytes=precision.bytes if lora else 0.0,
        rank=request.rank,
        by=software(request.library).name,
        fabric=fabric_said(request.fabric, gpu_device) if request.fabric else None,
        tensor=request.tensor,
        pipeline=request.pipeline,
        context=request.context_parallel,
        may_shard=not request.no_shard,
    )


def _gpu_hour_price(
    request: TrainRequest, used: Device, listed: PriceList
) -> tuple[float | None, tuple[str, ...]]:
    """Return the price in USD per GPU-hour, and remarks on its source; None if no price
    is known."""
    if request.usd_per_gpu_hour is not None:
        return request.usd_per_gpu_hour, ()
    try:
        usual = listed.typical(used.name)
    except NotFound:
        return None, (
            f"no price of {used.title} is known; set it with --usd-per-gpu-hour",
        )
    return usual, (
        f"the price is {usual:.2f} USD a GPU-hour, the median on demand; change it with "
        "--usd-per-gpu-hour",
    )


def _other_gpu_levers(found: Trained) -> list[Lever]:
    """Return the run's gains on other GPUs that support its precision."""
    own_device, precision = found.ask.device, found.ask.precision
    other_devices = [
        other_device
        for other_device in map(device, OTHERS)
        if other_device != own_device and precision in other_device.flops
    ]
    levers = (
        with_device(found, candidate_device) for candidate_device in other_devices
    )
    return [lever for lever in levers if lever is not None]
