"""What a head counts of what it commits."""

from dataclasses import replace

from corral.control.counts import Counts
from corral.domain.attempt import Cause
from corral.domain.ids import AttemptNumber
from corral.domain.world import Changes
from tests.worlds import Cluster, gang, node


def test_a_job_waits_once_and_starts_with_each_attempt() -> None:
    cluster, counts = Cluster(node("n1")), Counts()
    job = cluster.submit(gang())
    first = replace(
        cluster.world.attempts.pop(job), placed_at=cluster.world.jobs[job].submitted_at + 7
    )
    queue = cluster.world.jobs[job].spec.queue
    counts.take_in(cluster.world, Changes(attempts=(first,)))
    cluster.world.attempts[job] = first
    second = replace(first, number=AttemptNumber(2), placed_at=first.placed_at + 100)
    counts.take_in(cluster.world, Changes(attempts=(second,)))
    assert (counts.waits[queue].total, counts.starts[queue]) == (7.0, 2)


def test_an_end_is_counted_once_with_its_cause() -> None:
    cluster, counts = Cluster(node("n1")), Counts()
    job = cluster.submit(gang())
    ended = replace(cluster.world.attempts[job], ended_at=9.0, cause=Cause.USER)
    counts.take_in(cluster.world, Changes(attempts=(ended,)))
    cluster.world.attempts[job] = ended
    counts.take_in(cluster.world, Changes(attempts=(replace(ended, quote="why"),)))
    assert counts.failures == {Cause.USER: 1}
