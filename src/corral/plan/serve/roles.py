"""Whether prefill and decode on replicas of their own would pay for a service."""

from dataclasses import dataclass, replace
from math import ceil, inf, isfinite
from typing import Final

from corral.perf.inference import Replica
from corral.perf.serving import BatchLimits, Load, served
from corral.perf.serving_memory import ServingReplica, cache_bytes

QUANTILE: Final = 0.9
MOST_REPLICAS: Final = 64  # whose divisions are all compared
WORTHWHILE: Final = 0.9  # of the present ITL, without targets


@dataclass(frozen=True, slots=True, kw_only=True)
class RolesEstimate:
    """Latencies of a steady load on the same number of replicas, with and without roles.

    Times are 0.9 quantiles in seconds; infinite where the load is too high.

    Attributes:
        prefill: replicas that compute prompts only, in the best division.
        decode: replicas that generate tokens only.
        transfer_seconds: time that the keys and values of a prompt take to the other
            replica; part of `ttft`.
        pays: whether roles keep the targets that replicas without roles miss; without
            targets, whether they shorten the time between tokens by a tenth or more and
            do not lengthen the time to the first token.
    """

    prefill: int
    decode: int
    ttft: float
    itl: float
    mixed_ttft: float
    mixed_itl: float
    transfer_seconds: float
    pays: bool

    @property
    def replicas(self) -> int:
        return self.prefill + self.decode


def estimate_roles(
    replica: Replica,
    limits: BatchLimits,
    load: Load,
    replicas: int,
    ttft_target: float | None = None,
    itl_target: float | None = None,
) -> RolesEstimate | None:
    """Return the estimate for the division of the replicas with the shortest times; None
    if there are fewer than two replicas, or no division takes the load.

    Args:
        load: of all replicas together.
        ttft_target: seconds to the first token; None: no target.
        itl_target: seconds between tokens; None: no target.
    """
    if replicas < 2:
        return None
    mixed = served(replica, replace(load, rate=load.rate / replicas), limits)
    mixed_times = (mixed.ttft_quantile(QUANTILE), mixed.itl_quantile(QUANTILE))
    transfer = transfer_seconds(replica, load.prompt)
    best: RolesEstimate | None = None
    for prefill in range(1, replicas):
        decode = replicas - prefill
        ttft, itl = _times(replica, limits, load, prefill, decode)
        if not isfinite(ttft) or not isfinite(itl):
            continue
        estimate = RolesEstimate(
            prefill=prefill,
            decode=decode,
            ttft=ttft + transfer,
            itl=itl,
            mixed_ttft=mixed_times[0],
            mixed_itl=mixed_times[1],
            transfer_seconds=transfer,
            pays=_pays((ttft + transfer, itl), mixed_times, (ttft_target, itl_target)),
        )
        if best is None or _rank(estimate) < _rank(best):
            best = estimate
    return best


def fewest_with_roles(
    replica: Replica,
    limits: BatchLimits,
    load: Load,
    replicas: int,
    ttft_target: float | None = None,
    itl_target: float | None = None,
) -> RolesEstimate | None:
    """Return the estimate for the fewest replicas that keep the targets with roles, if
    these are fewer than without; else that for as many as without. None as for
    `estimate_roles`; arguments as there.

    Args:
        replicas: the fewest that keep the targets without roles.
    """
    # of many replicas, a part with its part of the load has the same times
    parts = ceil(replicas / MOST_REPLICAS)
    most = ceil(replicas / parts)
    load = replace(load, rate=load.rate * most / replicas)
    targets = (ttft_target, itl_target)
    best = estimate_roles(replica, limits, load, most, *targets)
    fewest = 2
    while targets != (None, None) and fewest < most:
        middle = (fewest + most) // 2
        estimate = estimate_roles(replica, limits, load, middle, *targets)
        if estimate is not None and estimate.pays:
            best = estimate
            most = middle
        else:
            fewest = middle + 1
    if best is None or parts == 1:
        return best
    return replace(best, prefill=best.prefill * parts, decode=best.decode * parts)


def _rank(estimate: RolesEstimate) -> tuple[bool, float]:
    relative = estimate.ttft / estimate.mixed_ttft if estimate.mixed_ttft < inf else 0.0
    relative += estimate.itl / estimate.mixed_itl if estimate.mixed_itl < inf else 0.0
    return (not estimate.pays, relative)


def _times(
    replica: Replica, limits: BatchLimits, load: Load, prefill: int, decode: int
) -> tuple[float, float]:
    """Return (time to the first token, time between tokens) of a division."""
    first = served(replica, replace(load, rate=load.rate / prefill, output=1.0), limits)
    # each prompt comes with its keys and values: one token is computed
    later = served(
        replica,
        replace(load, rate=load.rate / decode, shared=max(0.0, load.prompt - 1)),
        limits,
    )
    return first.ttft_quantile(QUANTILE), later.itl_quantile(QUANTILE)


def _pays(
    times: tuple[float, float],
    mixed: tuple[float, float],
    targets: tuple[float | None, float | None],
) -> bool:
    if targets == (None, None):
        return times[0] <= mixed[0] and times[1] <= WORTHWHILE * mixed[1]
    return _keeps(times, targets) and not _keeps(mixed, targets)


def _keeps(
    times: tuple[float, float], targets: tuple[float | None, float | None]
) -> bool:
    return all(
        target is None or seconds <= target
        for seconds, target in zip(times, targets, strict=True)
    )


def transfer_seconds(replica: Replica, prompt_tokens: float) -> float:
    """Return the seconds in which each GPU sends its keys and values of a prompt over
    the usual network between nodes."""
    serving = ServingReplica(
        model=replica.model,
        context=max(1, round(prompt_tokens)),
        batch=1,
        tensor=replica.tensor,
        pipeline=replica.pipeline,
        weight_bytes=replica.weight_bytes,
        kv_bytes=replica.kv_bytes,
    )
    return cache_bytes(serving) / replica.wires.fabric.bytes_per_s
