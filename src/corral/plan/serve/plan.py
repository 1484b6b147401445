"""GPUs that serve a model within latency limits: their type, their number, and the cost
of a token."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from itertools import islice
from math import ceil, inf, isfinite
from typing import Annotated, Final

from corral.catalog.devices import Device, device, devices
from corral.catalog.models import Model
from corral.catalog.precisions import Precision
from corral.catalog.prices import KINDS, PriceList, prices
from corral.domain.errors import Refusal, SpecInvalid
from corral.domain.units import counted
from corral.perf.engines import engine_said
from corral.perf.inference import Replica
from corral.perf.replicas import most_sequences
from corral.perf.serving import BatchLimits, Load, Served, capacity, served
from corral.perf.topology import Wires
from corral.plan.bounds import Above, Length, NumberBound, Usd, check, number_text
from corral.plan.gpu_support import USUAL, Unsuited, half, kept_in, served_by
from corral.plan.parse.models import model_said, precision_said
from corral.plan.serve.roles import RolesEstimate, fewest_with_roles

HALF: Final = "bf16 (fp16 on GPUs without)"
QPS: Final = NumberBound(0.001, 1e7)
SHARE: Final = 0.9  # of requests that keep the targets
ROUNDS: Final = 9  # of halving the rate of one replica: to a five-hundredth of the most
SEQUENCES: Final = 1024  # in one batch at the most: vLLM's max_num_seqs on large GPUs
# of one replica, where one node does not hold it: a stage on each
NODES: Final = (2, 4, 8)
ALONE: Final = 1e-3  # of what a replica can do: a request that meets no other
MILLION: Final = 1e6
HOUR: Final = 3600.0
PRICED: Final = {
    "on_demand": "on demand",
    "reserved_1y": "for a year",
    "reserved_3y": "for three years",
    "spot": "on spot",
}


class TargetsMissed(Refusal):
    """No known GPU serves the model within the targets."""

    code = "targets_missed"


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """Request for a serving plan. None and "" mean that a value is not given.

    Attributes:
        model: Name of the model, the file (or text) of its config.json, or
            layers=32,hidden=4096,...
        qps: Requests per second, of all users together.
        input: Number of tokens of a prompt.
        output: Number of tokens of an answer.
        ttft_p90: Target for the time to the first token: 90 % of the requests have it
            within this time, in milliseconds.
        itl_p90: Target for the time between two tokens: it is at most this in 90 % of
            cases, in milliseconds.
        gpu: Type of GPU; the default is all types that have a price.
        precision: Precision of the weights: fp8, int4, ...; the default is that of the
            published weights.
        kv_precision: Precision of the cached keys and values: fp8, ...; the default is
            16 bits.
        engine: Inference engine: vllm, tensorrt-llm, ...
        shared: Number of first tokens that all prompts share, and that stay cached.
        price: Kind of price: on_demand, reserved_1y, reserved_3y or spot.
        usd_per_gpu_hour: Price of a GPU-hour of the given type, in USD, instead of the
            catalog's price.
    """

    model: str
    _: KW_ONLY
    qps: Annotated[float, QPS]
    input: Length
    output: Length
    ttft_p90: Above = None
    itl_p90: Above = None
    gpu: str = ""
    precision: str = ""
    kv_precision: str = ""
    engine: str = "vllm"
    shared: int = 0
    price: str = "on_demand"
    usd_per_gpu_hour: Usd = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSet:
    """`replicas` of a model on GPUs of one type, which share the requests evenly.

    `each`: the load and latencies of one replica. `most_rate`: the highest request rate
    per second that one replica serves within the targets. `usd_per_hour`: the price of
    all replicas; None if the GPU has no price.
    """

    replica: Replica
    limits: BatchLimits
    replicas: int
    each: Served
    most_rate: float
    usd_per_hour: float | None

    @property
    def gpus(self) -> int:
        return self.replicas * self.replica.gpus

    @property
    def output_rate(self) -> float:
        """Return the output tokens per second of all replicas."""
        return self.replicas * self.each.output_rate

    @property
    def usd_per_million(self) -> float | None:
        """Return the USD for a million output tokens; None without price."""
        if self.usd_per_hour is None:
            return None
        return self.usd_per_hour / (self.output_rate * HOUR) * MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """A type of GPU that misses the targets, and the reason `why`. `ttft`, `itl`: the
    latencies in seconds that 90 % of the requests meet when each is served alone;
    infinite if the model does not fit."""

    device: Device
    why: str
    ttft: float = inf
    itl: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ServePlan:
    """A serving plan. `fleets`: for each type of GPU the cheapest set of replicas, the
    cheapest set first; at least one. `roles`: estimate of prefill and decode on replicas
    of their own, for the cheapest set; None: too few replicas, or too much load.
    `cautions`: parts of the request that the model may not support well."""

    request: ServeRequest
    model: Model
    fleets: tuple[ReplicaSet, ...]
    roles: RolesEstimate | None
    unfit: tuple[Unfit, ...]
    remarks: tuple[str, ...]
    cautions: tuple[str, ...]

    @property
    def best(self) -> ReplicaSet:
        return self.fleets[0]


def plan_serve(
    request: ServeRequest, *, listed: PriceList | None = None, longest: int = 0
) -> ServePlan:
    """Return the plan with the cheapest set of replicas that meets the targets, and
    with those on other GPU types. `listed`: prices, instead of the catalog's.
    `longest`: tokens of the longest request, which each replica must be able to hold.

    For each type, a replica is cut over 1, 2, 4, ... GPUs of a node. A model too large
    for a node is split by stages over several nodes. Each option gets the highest rate
    at which 90 % of its requests meet the targets, including queueing. The option that
    serves all requests at the lowest cost is kept. Raises: NotFound, ModelRefused,
    SpecInvalid, TargetsMissed.
    """
    _validate_request(request)
    engine_said(request.engine)
    model = model_said(request.model)
    cautions = tuple(_context_cautions(request, model))
    offers = listed or prices()
    fleets: list[ReplicaSet] = []
    unfit: list[Unfit] = []
    for candidate in _candidates(request, offers):
        try:
            usd = _gpu_hour_price(candidate, request, offers)
            best_set = _best_of(candidate, model, request, usd, longest)
        except Unsuited as unsuited:
            if request.gpu:
                raise
            best_set = Unfit(device=candidate, why=unsuited.why)
        if isinstance(best_set, ReplicaSet):
            fleets.append(best_set)
        else:
            unfit.append(best_set)
    if not fleets:
        raise _targets_missed_error(request, model, unfit)
    fleets.sort(key=_cost_sort_key)
    return ServePlan(
        request=request,
        model=model,
        fleets=tuple(fleets),
        roles=_roles_of(fleets[0], request),
        unfit=tuple(unfit),
        remarks=tuple(_assumption_remarks(request, model, offers)),
        cautions=cautions,
    )


def _roles_of(fleet: ReplicaSet, request: ServeRequest) -> RolesEstimate | None:
    load = Load(
        rate=request.qps,
        prompt=request.input,
        output=request.output,
        shared=request.shared,
    )
    return fewest_with_roles(
        fleet.replica,
        fleet.limits,
        load,
        fleet.replicas,
        None if request.ttft_p90 is None else request.ttft_p90 / 1e3,
        None if request.itl_p90 is None else request.itl_p90 / 1e3,
    )


def _validate_request(request: ServeRequest) -> None:
    check(request)
    if not 0 <= request.shared < request.input:
        raise SpecInvalid(
            f"--shared cannot be {number_text(request.shared)}: a prompt has "
            f"{request.input:,} tokens",
            hint=f"give a number from 0 to {request.input - 1:,}",
        )
    if request.price not in KINDS:
        raise SpecInvalid(
            f"--price cannot be {request.price!r}",
            hint=f"give one of {', '.join(KINDS)}",
        )
    if request.usd_per_gpu_hour is not None and not request.gpu:
        raise SpecInvalid(
            "--usd-per-gpu-hour requires a type of GPU", hint="set the type with --gpu"
        )


def _context_cautions(request: ServeRequest, model: Model) -> Iterator[str]:
    """Yield a caution if a request is longer than the context that the model was made
    for.

    Raises: SpecInvalid if the model has learned positions and too few for these tokens.
    Computed positions have no limit, but answers get worse.
    """
    tokens = request.input + request.output
    if not model.context or tokens <= model.context:
        return
    request_text = (
        f"{counted(request.input, 'token')} in and {request.output:,} out are "
        f"{tokens:,} in all"
    )
    if model.positions:
        raise SpecInvalid(
            f"{request_text}, but {model.name} supports at most {model.context:,}",
            hint=f"reduce --input and --output to {model.context:,} in all, or choose another "
            "model: corral plan catalog models",
        )
    yield (
        f"{request_text}, but {model.name} was trained for {model.context:,}: engines accept "
        "more only with "
        "scaled positions (vLLM: --rope-scaling), and answers get worse."
    )


def _candidates(request: ServeRequest, offers: PriceList) -> Iterator[Device]:
    """Yield the requested type of GPU, or all types that have a price of the requested
    kind."""
    if request.gpu:
        yield device(request.gpu)
        return
    for gpu_device in devices():
        if offers.rent(gpu_device.name, request.price):
            yield gpu_device


def _gpu_hour_price(
    one: Device, request: ServeRequest, offers: PriceList
) -> float | None:
    if request.usd_per_gpu_hour is not None:
        return request.usd_per_gpu_hour
    if not offers.rent(one.name, request.price):
        return None
    return offers.typical(one.name, request.price)


def _best_of(
    one: Device, model: Model, request: ServeRequest, usd: float | None, longest: int
) -> ReplicaSet | Unfit:
    best_set: ReplicaSet | None = None
    unfit = Unfit(device=one, why="no layout divides the model evenly")
    for replica in _candidate_replicas(one, model, request):
        if replica.pipeline > 1 and (best_set or unfit.ttft < inf):
            break  # it fits a node: across nodes nothing is quicker or cheaper
        replica_set = _size_replica_set(replica, request, usd, longest)
        if isinstance(replica_set, Unfit):
            unfit = min(replica_set, unfit, key=_latency_sum)
        elif best_set is None or (replica_set.gpus, replica_set.replicas) < (
            best_set.gpus,
            best_set.replicas,
        ):
            best_set = replica_set
    return best_set or unfit


def _latency_sum(one: Unfit) -> float:
    return one.ttft + one.itl


def _candidate_replicas(
    one: Device, model: Model, request: ServeRequest
) -> Iterator[Replica]:
    weights = kept_in(request.precision, one, model.published)
    precision = (
        precision_said(request.kv_precision) if request.kv_precision else half(one)
    )
    base_replica = Replica(
        model=model,
        device=one,
        wires=Wires(
            scale_up=one.scale_up,
            domain_gpus=max(one.domain_gpus, one.node_gpus),
            fabric=one.fabric,
        ),
        engine=served_by(request.engine, one),
        precision=half(one) if weights is Precision.INT4 else weights,
        weight_bytes=weights.bytes,
        kv_bytes=precision.bytes,
    )
    widths = [2**power for power in range(8) if 2**power <= one.node_gpus]
    widths = [width for width in widths if not model.heads % width]
    for width in widths:
        yield replace(base_replica, tensor=width)
    for stages in NODES:
        if stages <= model.layers:
            yield replace(base_replica, tensor=widths[-1], pipeline=stages)


def _size_replica_set(
    replica: Replica, request: ServeRequest, usd: float | None, longest: int
) -> ReplicaSet | Unfit:
    tokens = request.input + request.output
    batch_limit = most_sequences(replica, tokens)
    if batch_limit < 1 or most_sequences(replica, max(longest, tokens)) < 1:
        return Unfit(
            device=replica.device, why=f"does not fit on {counted(replica.gpus, 'GPU')}"
        )
    limits = BatchLimits(sequences=min(batch_limit, SEQUENCES))
    load = Load(
        rate=1.0,
        prompt=request.input,
        output=request.output,
        shared=float(request.shared),
    )
    max_rate = capacity(replica, load, limits)
    alone = served(replica, replace(load, rate=ALONE * max_rate), limits)
    if not _is_within_targets(alone, request):
        return _too_slow(replica, alone, request)
    lower_rate, upper_rate = ALONE * max_rate, max_rate
    for _ in range(ROUNDS):
        rate = (lower_rate + upper_rate) / 2
        is_within = _is_within_targets(
            served(replica, replace(load, rate=rate), limits), request
        )
        lower_rate, upper_rate = (rate, upper_rate) if is_within else (lower_rate, rate)
    count = ceil(request.qps / lower_rate)
    return ReplicaSet(
        replica=replica,
        limits=limits,
        replicas=count,
        each=served(replica, replace(load, rate=request.qps / count), limits),
        most_rate=lower_rate,
        usd_per_hour=None if usd is None else usd * count * replica.gpus,
    )


def _is_within_targets(one: Served, request: ServeRequest) -> bool:
    ttft, itl = request.ttft_p90 or inf, request.itl_p90 or inf
    first_token_ms, next_one = (
        one.ttft_quantile(SHARE) * 1e3,
        one.itl_quantile(SHARE) * 1e3,
    )
    return isfinite(first_token_ms) and first_token_ms <= ttft and next_one <= itl


def _too_slow(replica: Replica, alone: Served, request: ServeRequest) -> Unfit:
    ttft, itl = alone.ttft_quantile(SHARE), alone.itl_quantile(SHARE)
    late = []
    if request.ttft_p90 is not None and ttft * 1e3 > request.ttft_p90:
        late.append(f"first token after {ttft * 1e3:,.0f} ms")
    if request.itl_p90 is not None and itl * 1e3 > request.itl_p90:
        late.append(f"{itl * 1e3:,.1f} ms between tokens")
    gpu_text = counted(replica.gpus, "GPU")
    reason = f"{' and '.join(late)} even for a single request on {gpu_text}"
    return Unfit(device=replica.device, why=reason, ttft=ttft, itl=itl)


def _cost_sort_key(one: ReplicaSet) -> tuple[float, int]:
    return (inf if one.usd_per_hour is None else one.usd_per_hour, one.gpus)


def _targets_missed_error(
    request: ServeRequest, model: Model, unfit: Sequence[Unfit]
) -> TargetsMissed:
    """Return the error. It names the type of GPU that comes nearest to the targets."""
    nearest = min(unfit, key=_latency_sum, default=None)
    if nearest is None:
        return TargetsMissed(
            f"no GPU has a price of the kind {request.price}",
            hint="choose a GPU with --gpu, or another kind with --price",
        )
    if nearest.ttft == inf:
        largest = max(unfit, key=lambda one: one.device.memory_bytes)
        return TargetsMissed(
            f"no requested GPU serves {model.name}; {largest.device.title}: {largest.why}",
            hint=_that_fits(request, model),
        )
    return TargetsMissed(
        f"no GPU meets these targets; {nearest.device.title} is nearest: {nearest.why}",
        hint=f"allow {ceil(nearest.ttft * 1e3)} ms or more to the first token and "
        f"{ceil(nearest.itl * 1e4) / 10:.1f} ms or more between tokens",
    )


def _that_fits(request: ServeRequest, model: Model) -> str:
    """Return a hint on what would fit: the usual type of GPU that holds the model on
    the fewest GPUs, or another change."""
    replicas: list[Replica] = []
    for gpu_device in map(device, USUAL):
        with suppress(Unsuited):
            fit = (
                candidate
                for candidate in _candidate_replicas(gpu_device, model, request)
                if _can_hold_request(candidate, request)
            )
            replicas += islice(fit, 1)
    if not replicas:
        return "reduce --input and --output, or choose a --precision with fewer bits"
    smallest_replica = min(replicas, key=lambda each: each.gpus)
    return (
        f"set --gpu {smallest_replica.device.name}: the model fits on "
        f"{counted(smallest_replica.gpus, 'GPU')} of it"
    )


def _can_hold_request(replica: Replica, request: ServeRequest) -> bool:
    return most_sequences(replica, request.input + request.output) >= 1


def _assumption_remarks(
    request: ServeRequest, model: Model, offers: PriceList
) -> Iterator[str]:
    yield (
        "requests arrive independently of each other (Poisson), each with "
        f"{counted(request.input, 'token')} in and {request.output:,} out"
    )
    weights = request.precision or model.published or HALF
    yield (
        f"weights are in {weights}, the KV cache in {request.kv_precision or '16 bits'}; "
        "change them with --precision and --kv-precision"
    )
    yield f"the engine is {engine_said(request.engine).name}; change it with --engine"
    if not request.shared:
        yield "prompts share no tokens; change it with --shared"
    if request.ttft_p90 is None:
        yield "the time to the first token has no target; set one with --ttft-p90"
    if request.itl_p90 is None:
        yield "the time between tokens has no target; set one with --itl-p90"
    if request.usd_per_gpu_hour is None:
        yield from _price_remarks(request, offers)


def _price_remarks(request: ServeRequest, offers: PriceList) -> Iterator[str]:
    how = PRICED[request.price]
    if request.gpu and not offers.rent(device(request.gpu).name, request.price):
        yield (
            f"no cloud in the price list rents out this GPU {how}; set its price with "
            "--usd-per-gpu-hour"
        )
        return
    yield f"the price is the median of the clouds {how}; change it with --price"
    if not request.gpu and (
        oldest := min((rent.date for rent in offers.rents), default=None)
    ):
        yield f"prices are from {oldest.isoformat()} on; see them with: corral plan prices"
