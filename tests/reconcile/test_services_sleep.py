"""Sleeping replicas: they fall asleep, lend their GPUs, and get them back."""

from dataclasses import replace
from typing import Any, Final

import pytest

from corral.domain.attempt import Exit, Seat
from corral.domain.desired_state import DesiredState, Version
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job, SleepCalls
from corral.domain.job_states import JobState
from corral.domain.lending import ParkBy
from corral.domain.observed_state import Phase
from corral.domain.reason_code import ReasonCode
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.requests import Cancel, Resume, SetNode, Suspend
from corral.domain.service import ReplicaRow, ScaleRule, ServiceSpec
from corral.domain.usage import Reservation
from corral.domain.world import Changes
from corral.reconcile.desired_state import wanted_of
from tests.reconcile.serving import Serving, service_spec
from tests.worlds import gang

CALLS: Final = SleepCalls(
    wake="/wake_up", state="/is_sleeping", state_field="is_sleeping"
)
WITHIN: Final = 10.0
BOTH: Final = pytest.mark.parametrize("park", [ParkBy.CACHE, ParkBy.ENGINE])


def sleeping_spec(park: ParkBy, **more: Any) -> ServiceSpec:
    fields: dict[str, Any] = {
        "min_replicas": 1,
        "max_replicas": 2,
        "park": park,
        "sleep_calls": CALLS if park is ParkBy.ENGINE else None,
        "scale": ScaleRule(back_within_seconds=WITHIN),
        **more,
    }
    return service_spec(**fields)


class Sleeping(Serving):
    """A service on one node of two GPUs; its second replica falls asleep."""

    def __init__(self, park: ParkBy, **more: Any) -> None:
        self.receipts: list[Receipt] = []
        super().__init__(sleeping_spec(park, **more), nodes=1)
        self.park = park
        self.demand(wanted=2, sleeping=0)
        self.ready()
        self.ready()
        assert self.ready_numbers == [1, 2]

    def _take(self) -> None:
        super()._take()
        assert self.cluster.outcome is not None
        self.receipts += self.cluster.outcome.changes.receipts

    def demand(self, *, wanted: int, sleeping: int) -> None:
        names = [row.job for row in self.rows] if self.cluster.world.services else []
        self.measure(
            wanted=wanted, sleeping=sleeping, under_way=dict.fromkeys(names, 0)
        )
        self.tick()

    def fall_asleep(self) -> ReplicaRow:
        """Let one replica fall asleep. Return its row."""
        self.demand(wanted=1, sleeping=1)
        self.tick(times=6)
        row = next(row for row in self.rows if row.sleep is not None)
        if self.park is ParkBy.ENGINE:
            self.say_asleep(row, True)
        else:
            self.leave()
        self.tick()
        row = self.row(row.number)
        assert row.sleep is not None
        assert row.sleep.asleep_at is not None
        return row

    def say_asleep(self, row: ReplicaRow, is_asleep: bool) -> None:
        self.cluster.say(row.job, Phase.UP, is_ready=True, is_asleep=is_asleep)
        self.tick()

    def borrow(self, *, grace: float = 1.0, name: str = "train") -> Job:
        id = self.cluster.submit(replace(gang(name), grace_seconds=grace))
        self._take()
        self.tick()
        return self.cluster.world.jobs[id]

    def job_now(self, id: JobId) -> Job:
        return self.cluster.world.jobs[id]

    def awake(self, row: ReplicaRow) -> None:
        """Let the replica that has its GPUs again answer its probe."""
        self.cluster.say(row.job, Phase.UP, is_ready=True, is_asleep=False)
        self.tick()
        self.tick()

    @property
    def gpus_in_use(self) -> list[tuple[JobId, int]]:
        return sorted(
            (allocation.job, index)
            for allocation in self.cluster.world.allocations.values()
            for index in allocation.seat.gpus
        )


@BOTH
def test_a_replica_that_is_not_needed_sleeps_and_its_gpu_is_used(park: ParkBy) -> None:
    serving = Sleeping(park)
    row = serving.fall_asleep()
    assert not row.is_ready
    assert [job for job, _ in serving.gpus_in_use] == [serving.row(1).job]
    train = serving.borrow()
    assert train.state is JobState.STARTING
    sleep = serving.row(row.number).sleep
    assert sleep is not None
    assert [borrow.job for borrow in sleep.borrows] == [train.id]
    state = serving.job_now(row.job).state
    is_engine = park is ParkBy.ENGINE
    assert state is (JobState.RUNNING if is_engine else JobState.SUSPENDED)


@BOTH
def test_a_slow_job_does_not_start_on_lent_gpus(park: ParkBy) -> None:
    serving = Sleeping(park)
    serving.fall_asleep()
    slow = serving.borrow(grace=30.0)
    assert slow.state is JobState.QUEUED
    outcome = serving.cluster.outcome
    assert outcome is not None
    assert outcome.reasons is not None
    reason = outcome.reasons[slow.id]
    assert reason.code is ReasonCode.LENT_ROOM
    assert "lent by service chat, which needs it back within 10 s" in reason.sentence
    assert serving.borrow(name="quick").state is JobState.STARTING


@BOTH
def test_a_measured_stop_counts_instead_of_the_grace(park: ParkBy) -> None:
    serving = Sleeping(park)
    serving.fall_asleep()
    slow = serving.borrow(grace=30.0)
    assert slow.state is JobState.QUEUED
    serving.cluster.world.apply(_changed(replace(slow, stop_seconds=2.0)))
    serving.tick(times=2)
    assert serving.job_now(slow.id).state is JobState.STARTING


@BOTH
def test_a_woken_replica_takes_its_gpus_back(park: ParkBy) -> None:
    serving = Sleeping(park)
    row = serving.fall_asleep()
    train = serving.borrow()
    serving.cluster.up(train.id)
    serving.demand(wanted=2, sleeping=0)
    stopping = serving.job_now(train.id)
    assert stopping.state is JobState.STOPPING
    assert "takes back the GPUs that it had lent" in stopping.reason
    serving.tick()
    assert row.job not in {job for job, _ in serving.gpus_in_use}
    serving.leave()
    serving.tick()
    owners = {index: job for job, index in serving.gpus_in_use}
    assert sorted(owners.values()) == [serving.row(1).job, row.job]
    assert serving.job_now(train.id).state is JobState.QUEUED
    assert not serving.row(row.number).is_ready
    serving.awake(row)
    assert serving.row(row.number).is_ready
    lost = [one for one in serving.receipts if one.job == train.id]
    assert [one.kind for one in lost] == [ReceiptKind.PREEMPTION]
    taken = [one for one in serving.receipts if one.kind is ReceiptKind.TAKING]
    assert taken[0].job == row.job
    assert taken[0].others == (train.id,)
    totals = serving.service.lent
    assert (totals.take_backs, totals.take_backs_in_time) == (1, 1)
    assert totals.asleep_gpu_seconds > 0
    (borrower,) = totals.borrowers
    assert borrower.take_backs == 1
    assert borrower.gpu_seconds > 0
    assert borrower.lost_gpu_seconds > 0


@BOTH
def test_no_job_starts_on_the_gpus_of_a_replica_that_waits_for_them(
    park: ParkBy,
) -> None:
    serving = Sleeping(park)
    row = serving.fall_asleep()
    train = serving.borrow()
    serving.cluster.up(train.id)
    serving.demand(wanted=2, sleeping=0)
    other = serving.borrow(name="other")
    serving.leave()
    serving.tick(times=2)
    assert serving.job_now(other.id).state is JobState.QUEUED
    assert row.job in {job for job, _ in serving.gpus_in_use}


def test_a_woken_replica_gets_lent_gpus_that_were_kept_for_a_waiting_job() -> None:
    serving = Sleeping(ParkBy.CACHE)
    row = serving.fall_asleep()
    wide = serving.cluster.submit(gang("wide", gpus=2))
    serving.tick()
    shape = serving.job_now(wide).spec.shapes[0]
    seat = Seat(node=NodeId("n1"), gpus=(0, 1), gpu_millis=2000)
    serving.cluster.world.reservations[wide] = Reservation(
        job=wide, shape=shape, seats=(seat,), victims=(), since=serving.cluster.wall
    )
    serving.demand(wanted=2, sleeping=0)
    assert serving.cluster.outcome is not None
    ended = {
        reservation.job: reservation.ended
        for reservation in serving.cluster.outcome.changes.reservations
    }
    assert ended[wide] == f"chat_2 ({row.job}) takes back GPUs that it had lent"
    serving.tick()
    assert row.job in {job for job, _ in serving.gpus_in_use}


@BOTH
def test_a_wake_without_a_borrower_is_no_take_back(park: ParkBy) -> None:
    serving = Sleeping(park)
    row = serving.fall_asleep()
    serving.demand(wanted=2, sleeping=0)
    serving.tick(times=2)
    serving.awake(row)
    assert serving.row(row.number).is_ready
    assert serving.service.lent.wakes == 1
    assert serving.service.lent.take_backs == 0
    assert len(serving.service.wakes) == 1


@BOTH
def test_demand_that_comes_back_at_once_finds_the_replica_awake(park: ParkBy) -> None:
    serving = Sleeping(park)
    serving.demand(wanted=1, sleeping=1)
    assert len(serving.ready_numbers) == 1
    serving.demand(wanted=2, sleeping=0)
    serving.tick()
    assert serving.ready_numbers == [1, 2]


@BOTH
def test_spare_replicas_are_made_and_put_to_sleep(park: ParkBy) -> None:
    serving = Serving(sleeping_spec(park, sleeping=1), nodes=1)
    serving.ready()
    serving.ready()
    assert [row.is_sleeping for row in serving.rows] == [False, True]
    serving.tick(times=400)
    assert len(serving.rows) == 2


@BOTH
def test_a_sleeping_replica_ends_when_it_is_too_many(park: ParkBy) -> None:
    serving = Sleeping(park)
    row = serving.fall_asleep()
    serving.demand(wanted=1, sleeping=0)
    serving.leave()
    serving.tick()
    assert row.job not in {other.job for other in serving.rows}
    assert serving.service.lent.asleep_gpu_seconds > 0


@BOTH
def test_a_user_may_cancel_a_sleeping_replica(park: ParkBy) -> None:
    serving = Sleeping(park)
    row = serving.fall_asleep()
    serving.ask(Cancel(job=row.job))
    serving.leave()
    serving.tick()
    assert row.job not in {other.job for other in serving.rows}


def test_a_sleeping_engine_that_is_stopped_does_not_wake_first() -> None:
    serving = Sleeping(ParkBy.ENGINE)
    row = serving.fall_asleep()
    serving.ask(Suspend(job=row.job))
    (node,) = serving.cluster.nodes
    world, facts = serving.cluster.world, serving.cluster.facts
    held = list(world.allocations.values())
    version = Version(term=1, counter=1)
    state = wanted_of(world, node, held, facts.nodes[node], version)
    assert row.job not in [launch.key[0] for launch in state.run]
    assert row.job in [stop.key[0] for stop in state.stop]


def test_a_user_may_resume_a_suspended_sleeper() -> None:
    serving = Sleeping(ParkBy.CACHE)
    row = serving.fall_asleep()
    serving.demand(wanted=2, sleeping=0)
    serving.ask(Resume(job=row.job))
    serving.tick()
    serving.ready(row.number)
    assert serving.row(row.number).is_ready


@BOTH
def test_the_memory_of_a_sleeping_replica_stays(park: ParkBy) -> None:
    job = sleeping_spec(park).replica
    asked = replace(job.resources, memory_bytes=25 * 10**9)
    serving = Sleeping(park, replica=replace(job, resources=asked))
    serving.fall_asleep()
    for gigabytes, state in ((20, JobState.QUEUED), (10, JobState.STARTING)):
        small = gang(f"uses{gigabytes}")
        resources = replace(small.resources, memory_bytes=gigabytes * 10**9)
        id = serving.cluster.submit(
            replace(small, resources=resources, grace_seconds=1.0)
        )
        assert serving.job_now(id).state is state


def test_the_engine_is_told_to_sleep_only_after_its_requests() -> None:
    serving = Sleeping(ParkBy.ENGINE)
    serving.demand(wanted=1, sleeping=1)
    assert _asleep(serving) == []
    serving.tick(times=6)
    row = next(row for row in serving.rows if row.sleep is not None)
    assert _asleep(serving) == [row.job]
    serving.say_asleep(row, True)
    train = serving.borrow()
    serving.cluster.up(train.id)
    serving.demand(wanted=2, sleeping=0)
    assert _asleep(serving) == [row.job]
    serving.leave()
    serving.tick()
    assert _asleep(serving) == []


def test_a_replica_that_falls_asleep_stops_once_its_requests_have_finished() -> None:
    serving = Sleeping(ParkBy.CACHE)
    serving.demand(wanted=1, sleeping=1)
    row = next(row for row in serving.rows if row.sleep is not None)
    for _ in range(6):
        serving.tick()
        if serving.job_now(row.job).state is JobState.STOPPING:
            break
    assert serving.job_now(row.job).state is JobState.STOPPING
    serving.measure(wanted=1, sleeping=1)  # without a route, gateways count none
    serving.tick()
    assert _stops(serving) == [row.job]


def test_an_engine_that_does_not_sleep_is_ended() -> None:
    serving = Sleeping(ParkBy.ENGINE)
    serving.demand(wanted=1, sleeping=1)
    serving.tick(seconds=5.0, times=30)
    row = next(row for row in serving.rows if row.sleep is not None)
    assert serving.job_now(row.job).state is JobState.STOPPING
    serving.leave()
    serving.tick()
    assert serving.job_now(row.job).state is JobState.SUSPENDED


def test_an_engine_that_does_not_wake_is_started_anew() -> None:
    serving = Sleeping(ParkBy.ENGINE)
    row = serving.fall_asleep()
    serving.demand(wanted=2, sleeping=0)
    serving.tick(seconds=20.0, times=17)
    assert serving.job_now(row.job).state is JobState.STOPPING
    serving.leave()
    serving.tick()
    assert serving.job_now(row.job).attempt == 2


def test_a_sleeping_engine_that_crashes_is_no_sleeper_any_more() -> None:
    serving = Sleeping(ParkBy.ENGINE)
    row = serving.fall_asleep()
    serving.cluster.say(row.job, Phase.ENDED, exits=((0, Exit(code=7, at=1.0)),))
    serving.tick()
    assert all(other.sleep is None for other in serving.rows)
    assert serving.service.lent.asleep_gpu_seconds > 0


def test_a_sleeper_wakes_elsewhere_when_its_node_takes_no_work() -> None:
    serving = Sleeping(ParkBy.CACHE)
    row = serving.fall_asleep()
    serving.ask(SetNode(node=next(iter(serving.cluster.nodes)), to="cordon"))
    serving.demand(wanted=2, sleeping=0)
    assert serving.job_now(row.job).state is JobState.QUEUED
    assert row.job not in serving.cluster.world.reservations


def _asleep(serving: Serving) -> list[JobId]:
    return [key[0] for key in _desired(serving).asleep]


def _stops(serving: Serving) -> list[JobId]:
    return [stop.key[0] for stop in _desired(serving).stop]


def _desired(serving: Serving) -> DesiredState:
    world, facts = serving.cluster.world, serving.cluster.facts
    (node,) = serving.cluster.nodes
    version = Version(term=1, counter=1)
    held = list(world.allocations.values())
    return wanted_of(world, node, held, facts.nodes[node], version)


def _changed(job: Job) -> Changes:
    return Changes(jobs=(job,))
