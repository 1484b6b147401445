"""No job waits without end behind better keys, and late jobs take no more than their part."""

from dataclasses import dataclass
from random import Random

import pytest

from corral.domain.ids import JobId
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import Queue
from corral.domain.queue_policy import Preempt
from corral.domain.queue_tree import QueueTree
from corral.domain.resources import Resources, Shape
from corral.replay.live_replay import Play
from corral.replay.snapshot import Coming, Happened, JobClass, Present, Terms
from corral.schedule.order.late_jobs import TURN_SECONDS, lateness_of
from corral.schedule.prediction.runtime_model import Lessons
from corral.schedule.waiting import Waiting
from tests.worlds import node

NODES = [node("n1", 4), node("n2", 4)]
TREE = QueueTree(
    queues=(Queue(name=DEFAULT_QUEUE, preempt=Preempt.ANY),), min_runtime_seconds=60.0
)
SHORT_SECONDS = 3600.0
RESTART_SECONDS = 60.0
DAYS = 8


def coming(number: int, at: float, nodes: int, seconds: float) -> Coming:
    gang = Waiting(
        job=JobId(f"j{number}"), priority=0, order=(number, 0),
        shapes=(Shape(nodes=nodes, resources=Resources(gpu_millis=4000)),),
    )  # fmt: skip
    return Coming(at, gang, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """More short ones than the two nodes can hold, for days, and some that need a day
    each."""

    long: list[Coming]
    short: list[Coming]

    @classmethod
    def of(cls, seed: int) -> "Crowd":
        chance, each = Random(seed), 0.48 * SHORT_SECONDS
        long = [
            coming(
                number,
                chance.uniform(SHORT_SECONDS, 7200.0),
                chance.choice((1, 2)),
                86_400.0,
            )
            for number in range(3)
        ]
        short = [
            coming(number, number * each, 1, SHORT_SECONDS)
            for number in range(3, int(DAYS * 86_400 / each))
        ]
        return cls(long=long, short=short)

    def play(self) -> list[Happened]:
        told: list[Happened] = []
        Play(
            Present(now=0.0, nodes=NODES, tree=TREE), {},
            sorted([*self.long, *self.short], key=lambda one: one.at),
            terms=Terms(restart_seconds=RESTART_SECONDS), hear=told.append, lessons=Lessons(),
        ).run()  # fmt: skip
        return told


@pytest.mark.parametrize("seed", range(2))
def test_no_job_is_later_than_the_last_one_would_be_if_all_went_by_age(
    seed: int,
) -> None:
    """There is more work than the nodes can do. By age, the last one would wait until
    all other work is done; no job, short or long, may be later than that one."""
    crowd = Crowd.of(seed)
    ends = {one.job: one.at for one in crowd.play() if one.kind == JobClass.ENDED}
    jobs = [*crowd.long, *crowd.short]
    work = sum(one.seconds * one.gang.shapes[0].nodes for one in jobs)
    last_waits = work / len(NODES) - DAYS * 86_400.0
    bound = lateness_of(last_waits, SHORT_SECONDS)
    assert len(ends) == len(jobs), "and each ends"
    for one in jobs:
        waited = ends[one.gang.job] - one.at - one.seconds
        assert lateness_of(waited, one.seconds) <= bound


def test_of_a_crowd_that_is_late_no_two_are_in_their_turn_at_once() -> None:
    """All are late here, and a tenth of the nodes is less than one of them."""
    present = Present(now=0.0, nodes=NODES, tree=TREE)
    rows = [coming(number, 0.0, 1, 5 * 86_400.0) for number in range(8)]
    play = Play(present, {}, rows, terms=Terms(restart_seconds=RESTART_SECONDS))
    at, turns = 0.0, 0
    while at < 6 * TURN_SECONDS:
        at += 3600.0
        play.run(until=at)
        holders = play.present().holders
        until = [
            one.protected_until for one in holders if one.protected_until is not None
        ]
        assert sum(at < moment for moment in until) <= 1
        turns += bool(until)
    assert turns, "somebody has had one"
