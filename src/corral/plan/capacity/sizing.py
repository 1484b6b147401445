"""Number of nodes for short waits, from replays of a log on different numbers of nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, isfinite
from typing import Annotated, Final

from corral.domain.errors import Conflict, SpecInvalid
from corral.domain.units import share_text
from corral.plan.bounds import NumberBound, check, number_text
from corral.replay.array_replay import ReplayOutcome
from corral.replay.quantile import quantile
from corral.replay.workload import Workload

SHARE: Final = NumberBound(0.001, 1, hint="give a share of the jobs, for example 0.9")
MOST_NODES: Final = 20_000

Play = Callable[[Workload, Sequence[int]], ReplayOutcome]  # a replay of the jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTarget:
    """Target that `share` of the jobs wait at most `seconds`."""

    seconds: float
    share: Annotated[float, SHARE] = 0.9

    def __post_init__(self) -> None:
        check(self)
        if not (isfinite(self.seconds) and self.seconds >= 0):
            hint = "give a time of 0 or more, for example 30m"
            raise SpecInvalid(
                f"the wait cannot be {number_text(self.seconds)} s", hint=hint
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTried:
    """Result of a replay on a number of nodes. `wait_seconds`: the wait that the
    target's share of the jobs does not exceed. `used`: the share of GPU time that was
    allocated, from the first submission to the last."""

    nodes: int
    gpus: int
    wait_seconds: float
    used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """Result of the replays. `found`: the fewest nodes that meet the target; with one
    node fewer the target is missed, or the largest job does not fit. `tried`: all
    replays, the fewest nodes first."""

    target: WaitTarget
    node_gpus: int
    found: SizeTried
    tried: tuple[SizeTried, ...]

    @property
    def is_steady(self) -> bool:
        """Return whether more nodes never made the wait longer in the replays."""
        pairs = pairwise(self.tried)
        return all(
            larger_size.wait_seconds <= fewer.wait_seconds
            for fewer, larger_size in pairs
        )


def nodes_for_wait(
    work: Workload,
    target: WaitTarget,
    *,
    node_gpus: int,
    play: Play,
    most: int = MOST_NODES,
) -> Sized:
    """Return the number of nodes that meets the target, by doubling from the mean load
    until the target is met, and then by bisection.

    More nodes may sometimes make a wait longer, as jobs then meet other jobs. So the
    result is the upper end of the bisected range, and not proven to be the smallest
    number.

    Raises: SpecInvalid without a job; Conflict if the largest job needs more than
    `most` nodes, or `most` nodes miss the target.
    """
    if not work.submits or node_gpus < 1:
        raise SpecInvalid(
            "the log has no job, or a node has no GPU",
            hint="give a log with jobs that ended",
        )
    min_nodes = ceil(max(work.gpus) / node_gpus)
    if min_nodes > most:
        raise Conflict(
            f"the largest job requests {max(work.gpus)} GPUs, more than {most} nodes of "
            f"{node_gpus} GPUs have",
            hint="give nodes with more GPUs, or leave this job out of the log",
        )
    tried: dict[int, SizeTried] = {}

    def meets(nodes: int) -> bool:
        tried[nodes] = _simulate_size(work, target, nodes, node_gpus, play)
        return tried[nodes].wait_seconds <= target.seconds

    lower_bound, upper_bound = (
        min_nodes - 1,
        min(most, max(min_nodes, ceil(_mean_load(work) / node_gpus))),
    )
    while not meets(upper_bound):
        if upper_bound == most:
            raise _target_missed_error(target, tried[upper_bound])
        lower_bound, upper_bound = upper_bound, min(most, 2 * upper_bound)
    while upper_bound - lower_bound > 1:
        middle = (lower_bound + upper_bound) // 2
        lower_bound, upper_bound = (
            (lower_bound, middle) if meets(middle) else (middle, upper_bound)
        )
    return Sized(
        target=target,
        node_gpus=node_gpus,
        found=tried[upper_bound],
        tried=tuple(tried[nodes] for nodes in sorted(tried)),
    )


def _simulate_size(
    work: Workload, target: WaitTarget, nodes: int, node_gpus: int, play: Play
) -> SizeTried:
    outcome = play(work, [node_gpus] * nodes)
    window = (work.submits[-1] - work.submits[0]) * nodes * node_gpus
    return SizeTried(
        nodes=nodes,
        gpus=nodes * node_gpus,
        # ends are sums
        wait_seconds=round(quantile(sorted(outcome.waits), target.share), 3),
        used=outcome.held_gpu_seconds / window if window else 0.0,
    )


def _mean_load(work: Workload) -> float:
    window = max(work.submits[-1] - work.submits[0], max(work.durations))
    pairs = zip(work.durations, work.gpus, strict=True)
    return sum(seconds * gpus for seconds, gpus in pairs) / window


def _target_missed_error(target: WaitTarget, best: SizeTried) -> Conflict:
    return Conflict(
        f"even on {best.nodes:,} nodes {share_text(target.share)} of the jobs wait up to "
        f"{best.wait_seconds:.0f} s",
        hint=f"allow a wait of {best.wait_seconds:.0f} s, or a smaller share of the jobs",
    )
