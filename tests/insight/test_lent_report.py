"""Sums of what sleeping replicas have lent."""

from dataclasses import replace

import pytest

from corral.domain.attempt import Seat
from corral.domain.ids import AttemptNumber, JobId, NodeId, QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.lending import (
    MOST_BORROWERS,
    Borrow,
    LentTotals,
    ReplicaSleep,
    SleepPhase,
)
from corral.domain.queue import Budget, Queue
from corral.domain.queue_tree import QueueTree
from corral.domain.service import ReplicaRow, Service, ServiceRevision
from corral.insight.lent_report import lent_report
from tests.services import SEED, service_spec

HOUR = 3600.0
SEAT = Seat(node=NodeId("n1"), gpus=(0, 1), gpu_millis=2000)
RESEARCH = QueueName("research")


def borrow(owner: str = "bob", *, since: float = 0.0, gpus: int = 1) -> Borrow:
    return Borrow(
        job=JobId("j9"),
        attempt=AttemptNumber(1),
        queue=RESEARCH,
        owner=UserName(owner),
        since=since,
        gpu_millis=gpus * 1000,
        gpu_type="h100",
    )


def sleeping_service(lent: LentTotals, *sleeps: ReplicaSleep) -> Service:
    spec = service_spec()
    rows = tuple(
        ReplicaRow(number=number, job=JobId(f"j1_{number}"), revision=1, sleep=sleep)
        for number, sleep in enumerate(sleeps, start=1)
    )
    revision = ServiceRevision(number=1, spec=spec, by=UserName("alice"), at=0.0)
    return Service(
        id=JobId("j1"),
        name=spec.name,
        owner=UserName("alice"),
        created_at=0.0,
        revisions=(revision,),
        current=1,
        key_seed=SEED,
        replicas=rows,
        lent=lent,
    )


def test_open_sleeps_and_loans_count_up_to_now() -> None:
    sleep = ReplicaSleep(since=0.0, seats=(SEAT,), asleep_at=0.0, borrows=(borrow(),))
    before = LentTotals().with_borrow(
        borrow(since=-HOUR), 0.0, lost=0.1 * HOUR, is_taken_back=True
    )
    (report,) = lent_report([sleeping_service(before, sleep)], QueueTree(), 2 * HOUR)
    assert report.asleep_gpu_hours == pytest.approx(4.0)
    assert report.lent_gpu_hours == pytest.approx(3.0)
    assert report.lost_gpu_hours == pytest.approx(0.1)
    assert report.sleeping == 1
    assert [one.take_backs for one in report.borrowers] == [1]


def test_what_was_earned_is_by_the_rates_of_the_borrowers_queue() -> None:
    budget = Budget(money=1000.0, rates=(("h100", 3.0),))
    queues = (Queue(name=DEFAULT_QUEUE), Queue(name=RESEARCH, budget=budget))
    tree = QueueTree(queues=queues)
    totals = LentTotals().with_borrow(
        borrow(gpus=2), HOUR, lost=0.0, is_taken_back=False
    )
    service = sleeping_service(replace(totals, wakes=1))
    (report,) = lent_report([service], tree, HOUR)
    assert report.earned == pytest.approx(6.0)
    (without,) = lent_report([service], QueueTree(), HOUR)
    assert [one.earned for one in without.borrowers] == [None]


def test_a_service_whose_replicas_never_slept_is_left_out() -> None:
    assert lent_report([sleeping_service(LentTotals())], QueueTree(), HOUR) == []


def test_many_borrowers_are_summed_up() -> None:
    totals = LentTotals()
    for number in range(MOST_BORROWERS + 5):
        totals = totals.with_borrow(
            borrow(f"user{number:03}"), HOUR, lost=0.0, is_taken_back=False
        )
    assert len(totals.borrowers) == MOST_BORROWERS + 1
    rest = next(one for one in totals.borrowers if not one.owner)
    assert rest.gpu_seconds == pytest.approx(5 * HOUR)


def test_a_take_back_counts_as_in_time_by_the_bound() -> None:
    totals = LentTotals()
    for seconds in (3.0, 12.0):
        totals = totals.with_wake(seconds, 10.0, is_taken_back=True)
    totals = totals.with_wake(1.0, 10.0, is_taken_back=False)
    assert (totals.wakes, totals.take_backs, totals.take_backs_in_time) == (3, 2, 1)
    assert totals.take_back_seconds == (3.0, 12.0)


def test_the_phases_of_a_sleep_follow_one_another() -> None:
    sleep = ReplicaSleep(since=0.0)
    assert sleep.phase is SleepPhase.FALLING_ASLEEP
    assert replace(sleep, asleep_at=1.0).phase is SleepPhase.ASLEEP
    assert replace(sleep, asleep_at=1.0, wakes_at=2.0).phase is SleepPhase.WAKING
