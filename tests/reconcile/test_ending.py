"""When a running job ends: as its kin did, and by its limit."""

from dataclasses import replace

import pytest

from corral.domain.ids import JobId
from corral.domain.observed_state import Progress
from corral.domain.requests import Suspend
from corral.domain.run_history import ExpectedEnd
from corral.reconcile.expected_end import ending_of
from tests.reconcile.test_foretell import ended
from tests.worlds import Cluster, gang, node


def running(
    limit_seconds: float | None = None, seconds_ago: float = 100.0
) -> tuple[Cluster, JobId]:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang("train-7", max_duration_seconds=limit_seconds))
    cluster.up(id)
    cluster.tick(seconds=100.0)
    return cluster, id


def ending(cluster: Cluster, id: JobId, *seconds: float) -> ExpectedEnd:
    runs = [ended("train", one) for one in seconds]
    found = ending_of(
        cluster.world.jobs[id], cluster.world.attempts[id], runs, cluster.wall
    )
    assert found is not None
    return found


def test_it_ends_as_those_of_its_kin_did_that_ran_longer() -> None:
    found = ending(*running(), 50.0, *(400.0 + 10 * number for number in range(21)))
    assert (found.kin, found.percent, found.ends_by) == (21, 80, None)
    assert str(found) == (
        "ends in 5 to 8 min (80 % likely), judging by 21 similar jobs"
    )


@pytest.mark.parametrize(
    ("kin", "percent", "text"),
    [
        (1, None, "ends in 4 to 5 min, judging by 1 similar job"),
        (2, None, "ends in 4 to 5 min, judging by 2 similar jobs"),
        (3, 50, "ends in 4 to 5 min (50 % likely), judging by 3 similar jobs"),
        (8, 77, "ends in 4 to 5 min (77 % likely), judging by 8 similar jobs"),
        (9, 80, "ends in 4 to 5 min (80 % likely), judging by 9 similar jobs"),
    ],
)
def test_few_kin_say_how_few_and_no_more_than_they_can(
    kin: int, percent: int, text: str
) -> None:
    found = ending(*running(), *[385.0] * kin)
    assert (found.percent, str(found)) == (percent, text)


def test_a_limit_ends_it_whatever_its_kin_did() -> None:
    cluster, id = running(limit_seconds=600.0)
    attempt = cluster.world.attempts[id]
    assert attempt.running_at is not None
    alone = ending(cluster, id)
    assert (str(alone), alone.ends_by) == ("", attempt.running_at + 600.0)
    found = ending(cluster, id, *[9000.0] * 10)
    assert found.ends is not None
    assert found.ends.high_seconds == pytest.approx(500.0)


def test_who_does_not_run_has_no_end() -> None:
    cluster, id = running()
    waits = cluster.submit(gang("train-8", gpus=2))
    assert ending_of(cluster.world.jobs[waits], None, [], cluster.wall) is None
    cluster.request(Suspend(job=id))
    assert (
        ending_of(cluster.world.jobs[id], cluster.world.attempts[id], [], 0.0) is None
    )


LOOP = Progress(
    step=300,
    first_step=100,
    until=700,
    data_seconds=10.0,
    compute_seconds=80.0,
    save_seconds=10.0,
)


def test_the_rate_of_its_steps_goes_before_all_that_its_kin_did() -> None:
    cluster, id = running()
    job, attempt = cluster.world.jobs[id], cluster.world.attempts[id]
    found = ending_of(job, attempt, [ended("train", 9000.0)] * 30, cluster.wall, LOOP)
    assert found is not None
    assert found.ends is not None
    assert found.ends.high_seconds == pytest.approx(200.0)
    assert str(found) == (
        "ends in 3 to 4 min, judging by its step rate (step 300 of 700)"
    )
    first = replace(LOOP, step=100)
    assert first.left_seconds is None, "no step is done"
    assert replace(LOOP, until=None).left_seconds is None


def test_a_limit_ends_it_before_its_last_step() -> None:
    cluster, id = running(limit_seconds=160.0)
    job, attempt = cluster.world.jobs[id], cluster.world.attempts[id]
    found = ending_of(job, attempt, [], cluster.wall, LOOP)
    assert found is not None
    assert found.ends is not None
    assert found.ends.high_seconds == pytest.approx(60.0, abs=1.0)


def test_jobs_that_failed_or_were_cancelled_tell_nothing_of_an_end() -> None:
    cluster, id = running()
    failed = replace(ended("train", 400.0), is_done=False)
    found = ending_of(
        cluster.world.jobs[id], cluster.world.attempts[id], [failed] * 30, cluster.wall
    )
    assert found is not None
    assert found.ends is None
