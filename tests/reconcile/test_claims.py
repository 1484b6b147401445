"""Faults of the cluster that only a job's own processes claim: believed, within
bounds."""

import pytest

from corral.domain.attempt import Exit
from corral.domain.cause import Cause
from corral.domain.culprits import OWN_PROGRAM
from corral.domain.ids import JobId
from corral.domain.job import Retry
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase, Progress
from corral.domain.requests import Resume
from corral.reconcile.attempt_end import MOST_CLAIMS, MOST_FRUITLESS_CLAIMS
from corral.reconcile.await_node_faults import SETTLES_SECONDS
from tests.worlds import Cluster, gang, node

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
GENEROUS = Retry(infra=10_000, user=0)


def fails(cluster: Cluster, job: JobId, how: str, step: int | None = None) -> None:
    """End the newest attempt as a program can that wants the cluster to pay."""
    cluster.request(Resume(job=job))  # at once, without the delay of the last retry
    cluster.up(job)
    progress = None if step is None else Progress(step=step)
    if how == "refuses":
        cluster.say(
            job, Phase.ENDED, progress=progress, trouble="ray does not start",
            trouble_of=OWN_PROGRAM, exits=((0, Exit(code=1, at=cluster.wall)),),
        )  # fmt: skip
    else:
        code, tail = (75, "") if how == "exits 75" else (1, ECC)
        exits = ((0, Exit(code=code, at=cluster.wall)),)
        cluster.say(
            job, Phase.ENDED, progress=progress, exits=exits, tails=((0, tail),)
        )
    cluster.tick()
    cluster.tick(seconds=SETTLES_SECONDS)  # a driver may explain it until then
    cluster.tick()


@pytest.mark.parametrize("how", ["refuses", "exits 75", "prints an ECC error"])
def test_claims_without_progress_are_paid_for_by_the_job_in_the_end(how: str) -> None:
    cluster = Cluster(node("n1"), node("n2"))
    job = cluster.submit(gang(retry=GENEROUS))
    for _ in range(MOST_FRUITLESS_CLAIMS):
        fails(cluster, job, how)
        assert job in cluster.world.jobs, "so often the cluster pays"
    assert cluster.world.jobs[job].infra_retries == MOST_FRUITLESS_CLAIMS
    fails(cluster, job, how)
    assert cluster.world.ended[job] == JobState.FAILED


def test_claims_with_progress_are_bounded_too() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    job = cluster.submit(gang(retry=GENEROUS))
    for step in range(MOST_CLAIMS):
        fails(cluster, job, "exits 75", step=step + 1)
        assert job in cluster.world.jobs
    fails(cluster, job, "exits 75", step=MOST_CLAIMS + 1)
    assert cluster.world.ended[job] == JobState.FAILED


@pytest.mark.parametrize("how", ["refuses", "exits 75", "prints an ECC error"])
def test_a_claim_makes_no_node_worse_for_other_jobs(how: str) -> None:
    cluster = Cluster(node("n1"), node("n2"))
    job = cluster.submit(gang(retry=GENEROUS))
    fails(cluster, job, how)
    assert cluster.world.jobs[job].failed_on, "the job itself tries elsewhere"
    assert not any(one.failed_at for one in cluster.world.nodes.values())
    failures = [one.record.failures for one in cluster.world.nodes.values()]
    assert sum(map(bool, failures)) == 1, "statistics over users count it"


def test_what_corral_itself_reports_is_no_claim() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    job = cluster.submit(gang(retry=GENEROUS))
    for _ in range(MOST_FRUITLESS_CLAIMS + 2):
        cluster.up(job)
        cluster.say(job, Phase.REFUSED, trouble="the image cannot be pulled")
        cluster.tick()
    assert cluster.world.jobs[job].state != JobState.FAILED
    assert cluster.world.jobs[job].claims == 0
    assert any(one.failed_at for one in cluster.world.nodes.values())
    assert cluster.world.attempts[job].cause in (Cause.INFRA, Cause.NONE)
