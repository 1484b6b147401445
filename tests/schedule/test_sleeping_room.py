"""Seats that sleeping replicas lend: which gangs may start on them."""

from dataclasses import replace

import pytest

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Resources, Shape
from corral.schedule import LentSeat, NodeRoom, NodeTypes, Waiting, decide
from tests.worlds import node

QUICK, SLOW = 3.0, 31.0


def waiting(name: str, *, stop_seconds: float, gpus: int = 1) -> Waiting:
    shape = Shape(nodes=1, resources=Resources(gpu_millis=gpus * 1000))
    return Waiting(
        job=JobId(name),
        shapes=(shape,),
        priority=0,
        order=(int(name[1:]), 0),
        stop_seconds=stop_seconds,
    )


def lent(gpu: int, *, stop_seconds: float | None = 8.0) -> LentSeat:
    return LentSeat(
        seat=Seat(node=NodeId("n1"), gpus=(gpu,), gpu_millis=1000, cpu_millis=1000),
        service="chat",
        back_within_seconds=10.0,
        stop_seconds=stop_seconds,
    )


def placed(gangs: list[Waiting], *seats: LentSeat) -> dict[str, tuple[int, ...]]:
    nodes = [node("n1")]
    decision = decide(
        [NodeRoom(one) for one in nodes],
        gangs,
        fleet=NodeTypes(nodes),
        sleeping=seats,
    )
    reasons = decision.reasons()
    for gang in gangs:
        if gang.job in reasons:
            assert reasons[gang.job].code is ReasonCode.LENT_ROOM, reasons[gang.job]
    return {one.job: one.seats[0].gpus for one in decision.placed}


def test_a_gang_that_stops_in_time_may_use_a_lent_seat() -> None:
    gangs = [waiting("j1", stop_seconds=QUICK), waiting("j2", stop_seconds=QUICK)]
    assert placed(gangs, lent(0)) == {"j1": (0,), "j2": (1,)}


def test_a_slow_gang_gets_only_seats_that_are_not_lent() -> None:
    gangs = [waiting("j1", stop_seconds=SLOW), waiting("j2", stop_seconds=SLOW)]
    assert placed(gangs, lent(0)) == {"j1": (1,)}


def test_a_slow_gang_does_not_hold_up_a_quick_one() -> None:
    gangs = [waiting("j1", stop_seconds=SLOW), waiting("j2", stop_seconds=QUICK)]
    assert placed(gangs, lent(0), lent(1)) == {"j2": (0,)}


def test_a_seat_without_a_bound_is_open_to_all() -> None:
    gangs = [waiting("j1", stop_seconds=SLOW)]
    assert placed(gangs, lent(0, stop_seconds=None), lent(1)) == {"j1": (0,)}


@pytest.mark.parametrize(
    ("stop_seconds", "advice"),
    [(8.0, "grace: 5s"), (3.5, "grace: 2s"), (1.5, "wait for other GPUs")],
)
def test_the_advised_grace_is_short_enough_for_the_lent_seat(
    stop_seconds: float, advice: str
) -> None:
    nodes = [node("n1")]
    gang = waiting("j1", stop_seconds=SLOW, gpus=2)
    decision = decide(
        [NodeRoom(one) for one in nodes],
        [gang],
        fleet=NodeTypes(nodes),
        sleeping=[lent(0, stop_seconds=stop_seconds), lent(1)],
    )
    (suggestion,) = decision.reasons()[gang.job].suggestions
    assert advice in suggestion


def test_a_gang_is_held_back_by_the_seat_that_it_cannot_have() -> None:
    nodes = [node("n1")]
    gang = waiting("j1", stop_seconds=SLOW, gpus=2)
    decision = decide(
        [NodeRoom(one) for one in nodes],
        [gang],
        fleet=NodeTypes(nodes),
        sleeping=[lent(0), replace(lent(1), stop_seconds=2.0)],
    )
    sentence = decision.reasons()[gang.job].sentence
    assert "2 GPUs are free, but lent by service chat" in sentence
    assert "must stop within 2.0 s, and this job may take 31.0 s" in sentence
