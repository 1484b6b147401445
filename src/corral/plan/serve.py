"""Which GPUs serve a model within limits of latency, how many, and what a token costs."""

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from math import ceil, inf, isfinite
from typing import Final

from corral.catalog.devices import Device, device, devices
from corral.catalog.models import Model
from corral.catalog.precisions import Precision
from corral.catalog.prices import KINDS, Prices, prices
from corral.domain.errors import Refusal, SpecInvalid
from corral.perf.engines import engine
from corral.perf.inference import Replica
from corral.perf.matmul import computed_in
from corral.perf.replicas import most_sequences
from corral.perf.serving import Limits, Load, Served, capacity, served
from corral.perf.wires import Wires
from corral.plan.said import model_said, precision_said

SHARE: Final = 0.9  # of requests that keep the targets
ROUNDS: Final = 9  # of halving the rate of one replica: to a five-hundredth of the most
SEQUENCES: Final = 1024  # in one batch at the most: vLLM's max_num_seqs on large GPUs
NODES: Final = (2, 4, 8)  # of one replica, where one node does not hold it: a stage on each
ALONE: Final = 1e-3  # of what a replica can do: a request that meets no other
MILLION: Final = 1e6
HOUR: Final = 3600.0


class TargetsMissed(Refusal):
    """No GPU that is known serves the model within the targets."""

    code = "targets_missed"


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """What is to be served. None and "" are not said.

    Attributes:
        model: Its name, the file (or text) of its config.json, or layers=32,hidden=4096,...
        qps: Requests a second, in all.
        input: Tokens of a prompt.
        output: Tokens of an answer.
        ttft_p90: Milliseconds in which 90 % of the requests have their first token.
        itl_p90: Milliseconds between two tokens, in 90 % of cases.
        gpu: Of this type only; else all that have a price.
        precision: Of the weights: bf16, fp8, int4, ...
        kv_precision: Of the keys and values that are kept.
        engine: Of inference: vllm, tensorrt-llm, ...
        shared: Tokens of each prompt that all share, and that are kept.
        price: Of which kind: on_demand, reserved_1y, reserved_3y or spot.
        usd_per_gpu_hour: What a GPU of the named type costs, where the catalog is not to say.
    """

    model: str
    _: KW_ONLY
    qps: float
    input: int
    output: int
    ttft_p90: float | None = None
    itl_p90: float | None = None
    gpu: str = ""
    precision: str = "bf16"
    kv_precision: str = "bf16"
    engine: str = "vllm"
    shared: int = 0
    price: str = "on_demand"
    usd_per_gpu_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """`replicas` of a model on GPUs of one type, which share the requests evenly.

    `each`: how the requests of one replica fare. `most_rate`: requests a second of one replica
    within the targets. `usd_per_hour`: of all; None without a price.
    """

    replica: Replica
    limits: Limits
    replicas: int
    each: Served
    most_rate: float
    usd_per_hour: float | None

    @property
    def gpus(self) -> int:
        return self.replicas * self.replica.gpus

    @property
    def output_rate(self) -> float:
        """Tokens a second of all replicas."""
        return self.replicas * self.each.output_rate

    @property
    def usd_per_million(self) -> float | None:
        """Of a million tokens of answers."""
        if self.usd_per_hour is None:
            return None
        return self.usd_per_hour / (self.output_rate * HOUR) * MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """A type of GPU that does not serve the model within the targets, and why. `ttft`, `itl`:
    seconds of 90 % of the requests that come alone; infinite where the model does not fit."""

    device: Device
    why: str
    ttft: float = inf
    itl: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ServePlan:
    """`fleets`: the cheapest of each type of GPU, the cheapest first; at least one."""

    request: ServeRequest
    model: Model
    fleets: tuple[Fleet, ...]
    unfit: tuple[Unfit, ...]
    told: tuple[str, ...]

    @property
    def best(self) -> Fleet:
        return self.fleets[0]


def plan_serve(request: ServeRequest, *, listed: Prices | None = None) -> ServePlan:
    """The cheapest fleet that keeps the targets, and those of other types of GPU beside it.

    For each type the replica is cut over 1, 2, 4, ... GPUs of a node, and where a whole node does
    not hold it, by stages over several; each takes the highest rate
    at which 90 % of its requests keep the targets, queueing included; of these the cheapest way to
    serve all requests is kept. Raises: NotFound, ModelRefused, SpecInvalid, TargetsMissed.
    """
    _check(request)
    model = model_said(request.model)
    offers = listed or prices()
    fleets: list[Fleet] = []
    unfit: list[Unfit] = []
    for one in _candidates(request, offers):
        found = _best_of(one, model, request, _price(one, request, offers))
        if isinstance(found, Fleet):
            fleets.append(found)
        else:
            unfit.append(found)
    if not fleets:
        raise _missed(unfit)
    fleets.sort(key=_cost)
    return ServePlan(
        request=request,
        model=model,
        fleets=tuple(fleets),
        unfit=tuple(unfit),
        told=tuple(_told(request, offers)),
    )


def _check(request: ServeRequest) -> None:
    if not (isfinite(request.qps) and request.qps > 0):
        raise SpecInvalid(f"{request.qps} requests a second", hint="give a number above 0")
    for name in ("input", "output"):
        if getattr(request, name) < 1:
            raise SpecInvalid(f"{name} is {getattr(request, name)}", hint="give 1 token or more")
    for name in ("ttft_p90", "itl_p90", "usd_per_gpu_hour"):
        value = getattr(request, name)
        if value is not None and not value > 0:
            raise SpecInvalid(f"{name} is {value}", hint="give a number above 0")
    if not 0 <= request.shared < request.input:
        raise SpecInvalid(
            f"{request.shared} of {request.input} tokens of a prompt are shared",
            hint="give fewer than the prompt has",
        )
    if request.price not in KINDS:
        raise SpecInvalid(f"{request.price} is no kind of price", hint="one of " + ", ".join(KINDS))
    if request.usd_per_gpu_hour is not None and not request.gpu:
        raise SpecInvalid("a price without its GPU", hint="name the type with --gpu")


def _candidates(request: ServeRequest, offers: Prices) -> Iterator[Device]:
    """The named type, or all that have a price of the kind."""
    if request.gpu:
        yield device(request.gpu)
        return
    for one in devices():
        if offers.rent(one.name, request.price):
            yield one


def _price(one: Device, request: ServeRequest, offers: Prices) -> float | None:
    if request.usd_per_gpu_hour is not None:
        return request.usd_per_gpu_hour
    if not offers.rent(one.name, request.price):
        return None
    return offers.typical(one.name, request.price)


def _best_of(one: Device, model: Model, request: ServeRequest, usd: float | None) -> Fleet | Unfit:
    best: Fleet | None = None
    unfit = Unfit(device=one, why="does not multiply numbers of this precision")
    for replica in _replicas(one, model, request):
        if replica.pipeline > 1 and (best or unfit.ttft < inf):
            break  # it fits a node: across nodes nothing is quicker or cheaper
        found = _fleet(replica, request, usd)
        if isinstance(found, Unfit):
            unfit = min(found, unfit, key=_miss)
        elif best is None or (found.gpus, found.replicas) < (best.gpus, best.replicas):
            best = found
    return best or unfit


def _miss(one: Unfit) -> float:
    return one.ttft + one.itl


def _replicas(one: Device, model: Model, request: ServeRequest) -> Iterator[Replica]:
    weights = precision_said(request.precision)
    kept = precision_said(request.kv_precision)
    try:
        computed_in(one, weights)
    except ValueError:
        return
    whole = Replica(
        model=model,
        device=one,
        wires=Wires(
            scale_up=one.scale_up,
            domain_gpus=max(one.domain_gpus, one.node_gpus),
            fabric=one.fabric,
        ),
        engine=engine(request.engine),
        precision=_multiplied(weights),
        weight_bytes=weights.bytes,
        kv_bytes=kept.bytes,
    )
    widths = [2**power for power in range(8) if 2**power <= one.node_gpus]
    widths = [width for width in widths if not model.heads % width]
    for width in widths:
        yield replace(whole, tensor=width)
    for stages in NODES:
        if stages <= model.layers:
            yield replace(whole, tensor=widths[-1], pipeline=stages)


def _multiplied(weights: Precision) -> Precision:
    """Integers of 4 bits are unpacked and multiplied in 16 (AWQ, GPTQ)."""
    return Precision.BF16 if weights is Precision.INT4 else weights


def _fleet(replica: Replica, request: ServeRequest, usd: float | None) -> Fleet | Unfit:
    held = most_sequences(replica, request.input + request.output)
    if held < 1:
        return Unfit(device=replica.device, why=f"does not fit {_gpus(replica.gpus)}")
    limits = Limits(sequences=min(held, SEQUENCES))
    load = Load(rate=1.0, prompt=request.input, output=request.output, shared=float(request.shared))
    most = capacity(replica, load, limits)
    alone = served(replica, replace(load, rate=ALONE * most), limits)
    if not _keeps(alone, request):
        return _too_slow(replica, alone, request)
    low, high = ALONE * most, most
    for _ in range(ROUNDS):
        rate = (low + high) / 2
        kept = _keeps(served(replica, replace(load, rate=rate), limits), request)
        low, high = (rate, high) if kept else (low, rate)
    count = ceil(request.qps / low)
    return Fleet(
        replica=replica,
        limits=limits,
        replicas=count,
        each=served(replica, replace(load, rate=request.qps / count), limits),
        most_rate=low,
        usd_per_hour=None if usd is None else usd * count * replica.gpus,
    )


def _keeps(one: Served, request: ServeRequest) -> bool:
    ttft, itl = request.ttft_p90 or inf, request.itl_p90 or inf
    first, next_one = one.ttft_quantile(SHARE) * 1e3, one.itl_quantile(SHARE) * 1e3
    return isfinite(first) and first <= ttft and next_one <= itl


def _too_slow(replica: Replica, alone: Served, request: ServeRequest) -> Unfit:
    ttft, itl = alone.ttft_quantile(SHARE), alone.itl_quantile(SHARE)
    late = []
    if request.ttft_p90 is not None and ttft * 1e3 > request.ttft_p90:
        late.append(f"first token after {ttft * 1e3:.0f} ms")
    if request.itl_p90 is not None and itl * 1e3 > request.itl_p90:
        late.append(f"{itl * 1e3:.1f} ms between tokens")
    where = _gpus(replica.gpus)
    why = f"{' and '.join(late)} even where a request is alone on {where}"
    return Unfit(device=replica.device, why=why, ttft=ttft, itl=itl)


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _cost(one: Fleet) -> tuple[float, int]:
    return (inf if one.usd_per_hour is None else one.usd_per_hour, one.gpus)


def _missed(unfit: Iterable[Unfit]) -> TargetsMissed:
    """With the GPU that comes nearest."""
    nearest = min(unfit, key=_miss, default=None)
    if nearest is None:
        return TargetsMissed(
            "no GPU has a price of this kind", hint="name one with --gpu, or another kind of price"
        )
    if nearest.ttft == inf:
        return TargetsMissed(
            "the model does not fit the GPUs that were asked for",
            hint="name another GPU with --gpu, or fewer bits a weight with --precision",
        )
    return TargetsMissed(
        f"no GPU keeps these targets; {nearest.device.title} comes nearest: {nearest.why}",
        hint=f"ask for {ceil(nearest.ttft * 1e3)} ms or more to the first token and "
        f"{ceil(nearest.itl * 1e4) / 10:.1f} ms or more between tokens",
    )


def _told(request: ServeRequest, offers: Prices) -> Iterator[str]:
    yield f"requests come independently of each other (Poisson), each {request.input} tokens in"
    yield f"weights in {request.precision}, cache in {request.kv_precision}: --precision"
    yield f"engine {engine(request.engine).name}: --engine names another"
    if not request.shared:
        yield "no tokens of prompts are shared: --shared names how many"
    if request.ttft_p90 is None:
        yield "any time to the first token: --ttft-p90 sets a target"
    if request.itl_p90 is None:
        yield "any time between tokens: --itl-p90 sets a target"
    if request.usd_per_gpu_hour is None:
        yield f"median {request.price} prices of the catalog: --price names another kind"
        if not request.gpu and (oldest := min((one.date for one in offers.rents), default=None)):
            yield f"of lists from {oldest.isoformat()} on: corral plan catalog prices"
