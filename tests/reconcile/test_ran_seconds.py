"""How long a job has run: its attempts together, without the time between them."""

import pytest

from corral.domain.attempt import Exit
from corral.domain.ids import JobId
from corral.domain.job import Job, Retry
from corral.domain.job_states import JobState
from corral.domain.requests import Suspend
from tests.worlds import SAVING, Cluster, gang, node


def after(cluster: Cluster, id: JobId) -> Job:
    """The job as the last tick has written it."""
    assert cluster.outcome is not None
    written = [job for job in cluster.outcome.changes.jobs if job.id == id]
    return written[-1] if written else cluster.world.jobs[id]


def test_attempts_count_and_what_is_between_them_does_not() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(retry=Retry(user=1)))
    cluster.up(id)
    cluster.tick(seconds=100.0)
    cluster.end(id, Exit(code=1, at=cluster.wall))
    assert after(cluster, id).ran_seconds == pytest.approx(100.0, abs=1.0)
    cluster.tick(seconds=500.0)
    cluster.up(id)
    cluster.tick(seconds=40.0)
    cluster.end(id, Exit(code=0, at=cluster.wall), settle=False)
    job = after(cluster, id)
    assert job.state == JobState.DONE
    assert job.ran_seconds == pytest.approx(140.0, abs=1.0)


def test_a_suspended_job_keeps_what_it_ran() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(checkpoint=SAVING))
    cluster.up(id)
    cluster.tick(seconds=60.0)
    cluster.request(Suspend(job=id))
    cluster.end(id, Exit(code=75, at=cluster.wall))
    job = after(cluster, id)
    assert job.state == JobState.SUSPENDED
    assert job.ran_seconds == pytest.approx(60.0, abs=2.0)
