"""What the auditor allows, and no more: by what truly happened, and the rules as they
are told."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from corral.domain.attempt import Allocation, Attempt, Seat
from corral.domain.ids import AttemptNumber, JobId, NodeId, UserName
from corral.domain.ids import Sequence as Order
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.resources import Shape
from corral.domain.usage import Reservation
from corral.domain.world import Changes
from corral.simulate.scenario import Scene
from tests.worlds import gang, node

LATE_SECONDS = 21_600.0
FIRST = AttemptNumber(1)
SEAT = Seat(node=NodeId("n1"), gpus=(0,), gpu_millis=1000)
LONG, SHORT = JobId("j1"), JobId("j2")


def job(id: JobId, state: JobState, limit: float | None = None, **more: object) -> Job:
    spec = gang(str(id), max_duration_seconds=limit, grace_seconds=2.0)
    base = Job(
        id=id, spec=spec, owner=UserName("ann"), submitted=Order(int(id[1:])),
        submitted_at=0.0, state=state, since=0.0,
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


@pytest.fixture
def scene() -> Iterator[Scene]:
    """One job runs for 20 s at most, on the only GPU of the only node."""
    scene = Scene(0, verbose=False)
    attempt = Attempt(
        job=LONG,
        number=FIRST,
        seats=(SEAT,),
        master_port=1,
        placed_at=0.0,
        running_at=18.0,
    )
    scene.books.nodes[NodeId("n1")] = node("n1", 1)
    scene.books.take_job(job(LONG, JobState.RUNNING, 20.0, attempt=FIRST))
    scene.books.take_job(job(SHORT, JobState.QUEUED, 20.0))
    scene.books.take_attempt(attempt)
    scene.books.take_allocation(
        Allocation(job=LONG, attempt=FIRST, seat=SEAT, since=0.0, placed_at=0.0)
    )
    yield scene
    scene.stage.loop.close()


def promise(latest_start: float) -> Changes:
    shape = Shape(nodes=1, resources=gang().resources)
    row = Reservation(
        job=SHORT,
        shape=shape,
        seats=(SEAT,),
        victims=(),
        since=18.0,
        latest_start=latest_start,
    )
    return Changes(reservations=(row,))


@pytest.mark.parametrize(
    ("heard_late", "latest"), [(False, 35.0), (True, 35.0), (True, 23.0)]
)
def test_a_start_is_promised_no_sooner_than_limits_end_as_they_truly_count(
    scene: Scene, heard_late: bool, latest: float
) -> None:
    """One that was up at 3 s is over by 25 s, though no head has heard of it before 18
    s."""
    if heard_late:
        scene.stage.evidence.up_since[LONG, FIRST] = 3.0
    scene.auditor.promised.check(promise(latest), 18.0, 18.0)
    assert (scene.stage.broken is None) == (heard_late and latest > 25.0)


@pytest.mark.parametrize(
    ("is_heard", "latest"), [(True, -960.0), (True, -980.0), (False, -980.0)]
)
def test_after_a_clock_was_set_a_start_is_judged_by_those_who_were_heard_since(
    scene: Scene, is_heard: bool, latest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head cannot know what the rows of another clock mean before it has heard the
    nodes."""
    scene.stage.evidence.up_since[LONG, FIRST] = 3.0
    monkeypatch.setattr(scene.books, "all_heard", lambda nodes: is_heard)
    scene.auditor.promised.check(Changes(), 17.0, 17.0)
    scene.auditor.promised.check(promise(latest), 18.0, 18.0 - 1000.0)
    assert (scene.stage.broken is not None) == (is_heard and latest < 25.0 - 1000.0)


@pytest.mark.parametrize(
    ("waited", "other_waited", "served", "by_age"),
    [
        (LATE_SECONDS, 0.0, 0.0, True),
        (LATE_SECONDS, 0.0, 0.0, False),
        (LATE_SECONDS - 1.0, 0.0, 0.0, True),
        (LATE_SECONDS, LATE_SECONDS + 1.0, 0.0, True),
        (LATE_SECONDS + 2.0, LATE_SECONDS + 1.0, 3600.0, True),
    ],
)
def test_only_the_latest_goes_before_one_that_is_alike_and_older(
    scene: Scene,
    waited: float,
    other_waited: float,
    served: float,
    by_age: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late_job = JobId("j3")
    placed = replace(SEAT, gpus=(1,))
    scene.books.take_job(job(SHORT, JobState.QUEUED, 20.0, waited_seconds=other_waited))
    scene.books.take_job(
        job(
            late_job,
            JobState.QUEUED,
            20.0,
            waited_seconds=waited,
            served_seconds=served,
        )
    )
    monkeypatch.setattr(scene.books, "decided_wall", lambda: 0.0)
    attempt = Attempt(
        job=late_job, number=FIRST, seats=(placed,), master_port=1, placed_at=0.0,
        protected_until=LATE_SECONDS if by_age else None,
    )  # fmt: skip
    started = job(late_job, JobState.STARTING, 20.0, attempt=FIRST)
    scene.auditor._placing.check(Changes(jobs=(started,), attempts=(attempt,)))
    is_late = by_age and not served and waited >= max(LATE_SECONDS, other_waited)
    assert (scene.stage.broken is None) == is_late


@pytest.mark.parametrize(("told_at", "in_order"), [(18.0, False), (19.5, True)])
def test_nobody_begins_before_its_like_that_was_told_first(
    scene: Scene, told_at: float, in_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room comes up elsewhere, and the second of two takes it; it is its own if it was
    told first (0050)."""
    second, elsewhere = JobId("j3"), NodeId("n2")
    monkeypatch.setattr(scene.books, "all_heard", lambda nodes: True)
    scene.books.nodes[elsewhere] = node("n2", 1)
    scene.books.take_job(job(second, JobState.QUEUED, 20.0))
    (first,) = promise(45.0).reservations
    second_told = replace(first, job=second, since=19.0, latest_start=70.0)
    told = Changes(reservations=(replace(first, since=told_at), second_told))
    scene.auditor.promised.check(told, 19.6, 19.6)
    scene.stage.broken = None  # of whom was told what first, others judge
    begun = Attempt(
        job=second, number=FIRST, seats=(replace(SEAT, node=elsewhere),), master_port=1,
        placed_at=20.0,
    )  # fmt: skip
    starts = job(second, JobState.STARTING, 20.0, attempt=FIRST)
    scene.auditor.promised.check(Changes(jobs=(starts,), attempts=(begun,)), 20.0, 20.0)
    assert (scene.stage.broken is None) == in_order
    assert in_order or "begins before" in str(scene.stage.broken)
