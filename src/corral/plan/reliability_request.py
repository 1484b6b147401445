"""plan reliability: how often a long run fails, asked in plain words."""

from dataclasses import KW_ONLY, dataclass
from typing import Final

from corral.catalog.devices import device
from corral.domain.errors import SpecInvalid
from corral.plan.reliability import LongRun, reliability
from corral.plan.reliability_report import report
from corral.plan.report import Report
from corral.plan.said import model_said

USUAL: Final = "llama-3.1-70b"  # where nothing says how large a save is


@dataclass(frozen=True, slots=True)
class ReliabilityRequest:
    """A long run. What is not said is taken as is usual, and told.

    Attributes:
        model: Of whose training state a save is made, as in plan model; for the size of a save.
        gpus: That the run needs at once.
        gpu: Their type.
        days: Of training, were there no failure.
        parameters: Instead of a model.
        node_gpus: GPUs of a node, which fails as one.
        rate: Failures that end the run, per 1,000 node-days of these very nodes.
        counted: How many failures were seen, for the band of that rate.
        stall_seconds: How long the run stands still for one save.
        async_saves: Saves are written in the background.
        write_gb_per_s: What storage takes from all nodes together.
        restart_minutes: From a failure until steps go on.
        interval_minutes: Between saves, to be compared with the best.
        repair_hours: Until a broken node is back.
        crews: Nodes that are repaired at once.
        availability: Share of the time in which there are to be enough nodes, spares included.
        usd_per_gpu_hour: What a GPU costs, for what failures cost.
    """

    model: str = ""
    _: KW_ONLY
    gpus: int
    days: float
    gpu: str = "h100-sxm"
    parameters: float | None = None
    node_gpus: int | None = None
    rate: float | None = None
    counted: int | None = None
    stall_seconds: float | None = None
    async_saves: bool = False
    write_gb_per_s: float | None = None
    restart_minutes: float | None = None
    interval_minutes: float | None = None
    repair_hours: float | None = None
    crews: int | None = None
    availability: float = 0.99
    usd_per_gpu_hour: float | None = None


def answer(request: ReliabilityRequest) -> Report:
    """Raises: NotFound, ModelRefused, SpecInvalid, Conflict where the run would never end."""
    used = device(request.gpu)
    each = used.node_gpus if request.node_gpus is None else request.node_gpus
    if request.gpus < 1 or each < 1:
        raise SpecInvalid(f"{request.gpus} GPUs, {each} a node", hint="give numbers from 1 on")
    parameters, told = _parameters(request)
    run = LongRun(
        nodes=-(-request.gpus // each),
        node_gpus=min(each, request.gpus),
        work_days=request.days,
        architecture=used.architecture,
        rate=request.rate,
        counted=request.counted,
        parameters=parameters,
        stall_seconds=request.stall_seconds,
        async_saves=request.async_saves,
        write_gb_per_s=request.write_gb_per_s,
        restart_minutes=request.restart_minutes,
        interval_minutes=request.interval_minutes,
        repair_hours=request.repair_hours,
        crews=request.crews,
        availability=request.availability,
        usd_per_gpu_hour=request.usd_per_gpu_hour,
    )
    return report(reliability(run), assumed=told)


def _parameters(request: ReliabilityRequest) -> tuple[float | None, tuple[str, ...]]:
    if request.parameters is not None:
        return request.parameters, ()
    if request.model:
        return float(model_said(request.model).parameters), ()
    if request.stall_seconds is not None:
        return None, ()
    return float(model_said(USUAL).parameters), (f"saves are those of {USUAL}: name another model",)
