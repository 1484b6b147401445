"""A job that faults of the cluster end again and again begins again after a delay."""

import pytest

from corral.control.job_reasons import reason_held
from corral.control.request_checks import check_asked
from corral.domain.ids import JobId
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase
from corral.domain.requests import Cancel, Resume, Suspend
from corral.reconcile import Now
from tests.worlds import Cluster, gang, node

FULL = "it cannot be started here: [Errno 28] No space left on device"


def refuses(cluster: Cluster, job: JobId) -> None:
    cluster.say(job, Phase.REFUSED, trouble=FULL)
    cluster.tick(seconds=0.01)
    cluster.tick(seconds=0.01)


def delayed(cluster: Cluster) -> JobId:
    job = cluster.submit(gang())
    refuses(cluster, job)
    assert cluster.world.jobs[job].state == JobState.STARTING, (
        "the first is retried at once"
    )
    refuses(cluster, job)
    assert cluster.world.jobs[job].state == JobState.HELD
    return job


def test_a_full_disk_of_ten_minutes_ends_no_job() -> None:
    cluster = Cluster(node("n1"))
    job, began = cluster.submit(gang()), cluster.wall
    while cluster.wall < began + 600:
        if cluster.world.jobs[job].state == JobState.STARTING:
            refuses(cluster, job)
        cluster.tick(seconds=0.5)
    assert 10 <= cluster.world.jobs[job].infra_retries < 20


def test_the_delay_is_over_by_itself_and_the_reason_tells_when() -> None:
    cluster = Cluster(node("n1"))
    job = delayed(cluster)
    now = Now(wall=cluster.wall, serving=cluster.serving)
    reason = reason_held(cluster.world, cluster.world.jobs[job], now)
    assert reason.code == "RetryDelay"
    assert (
        "No space left on device; the next attempt waits 1.0 s, until 1970-01-12 13:46:42"
        in reason.sentence
    )
    assert "2 faults of the cluster ended the job within 10 min" in reason.sentence
    assert reason.suggestions == (f"to begin now: corral resume {job}",)
    cluster.tick(seconds=1.1)
    assert cluster.world.jobs[job].state == JobState.STARTING


def test_a_clock_that_is_set_back_prolongs_no_delay() -> None:
    cluster = Cluster(node("n1"))
    job = delayed(cluster)
    cluster.wall -= 3600
    cluster.tick(seconds=0.1)
    assert cluster.world.jobs[job].state == JobState.STARTING


def test_whoever_resumes_the_job_does_not_wait() -> None:
    cluster = Cluster(node("n1"))
    job = delayed(cluster)
    check_asked(
        cluster.world, Resume(job=job), Now(wall=cluster.wall, serving=cluster.serving)
    )
    cluster.request(Resume(job=job))
    assert cluster.world.jobs[job].state == JobState.STARTING


@pytest.mark.parametrize("resumes", [True, False])
def test_a_suspended_job_stays_so_after_the_delay(resumes: bool) -> None:
    cluster = Cluster(node("n1"))
    job = delayed(cluster)
    cluster.request(Suspend(job=job))
    cluster.tick(seconds=2.0)
    assert cluster.world.jobs[job].state == JobState.SUSPENDED
    cluster.request(Resume(job=job) if resumes else Cancel(job=job))
    state = cluster.world.jobs[job].state if resumes else cluster.world.ended[job]
    assert state == (JobState.STARTING if resumes else JobState.CANCELLED)
