"""Hangs of simulated jobs, drawn when the job is created, and the reports of nodes about
them."""

from dataclasses import dataclass
from random import Random

from corral.domain.hang import HangAct, NodeHang, RankLook, RankState, WatchRule

BOUND_SECONDS = 10.0
LOOK_SECONDS = 2.0  # between the two looks
LASTS_SECONDS = 25.0  # a hang of which only an alert is made


@dataclass(frozen=True, slots=True, kw_only=True)
class HangBehaviour:
    """Hangs of one job.

    Args:
        hangs: Number of its attempts that hang.
        after_steps: Steps of an attempt after which it does; with the same number each
            time, the program hangs at the same step until it has saved further.
        is_machines: The stuck rank waits for a device.
        ends_by_itself: The ranks go on after LASTS_SECONDS.
        bound_seconds: Of a node, in which no step is made.
    """

    hangs: int
    after_steps: int
    is_machines: bool
    ends_by_itself: bool
    bound_seconds: float


def draw_hang_rule(chance: Random) -> WatchRule:
    return WatchRule(
        is_on=chance.random() < 0.9,
        bound_seconds=chance.choice([None, None, 5.0]),
        act=HangAct.ALERT if chance.random() < 0.3 else HangAct.RESTART,
    )


def draw_hangs(chance: Random, rule: WatchRule) -> HangBehaviour:
    hangs = chance.random() < 0.4
    return HangBehaviour(
        hangs=chance.choice([1, 1, 2, 3, 5]) if hangs else 0,
        after_steps=chance.randint(1, 6),
        is_machines=chance.random() < 0.2,
        ends_by_itself=rule.act is HangAct.ALERT or chance.random() < 0.2,
        bound_seconds=rule.bound_seconds or BOUND_SECONDS,
    )


def report_of(
    ranks: set[int], stuck: int, step: int, behaviour: HangBehaviour, seconds: float
) -> NodeHang:
    """Return what a node reports of its ranks.

    Args:
        seconds: Time since the newest step.
    """
    state = RankState.UNINTERRUPTIBLE if behaviour.is_machines else RankState.SLEEPING
    looks = tuple(
        RankLook(
            rank=rank,
            pid=100 + rank,
            step=step,
            state=state if rank == stuck else RankState.SLEEPING,
            frame="train.py:18 in load" if rank == stuck else "train.py:24 in step",
            is_in_collective=rank != stuck,
            operation="" if rank == stuck else "all_reduce",
        )
        for rank in sorted(ranks)
    )
    return NodeHang(
        rank_looks=(looks, looks),
        stalled_seconds=seconds,
        bound_seconds=behaviour.bound_seconds,
        is_user_bound=True,
    )
