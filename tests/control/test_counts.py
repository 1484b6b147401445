"""What a head counts of what it commits."""

from dataclasses import replace

from corral.control.counters import HeadCounters
from corral.domain.cause import Cause
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.world import Changes
from tests.worlds import Cluster, gang, node


def test_a_job_waits_once_and_starts_with_each_attempt() -> None:
    cluster, counts = Cluster(node("n1")), HeadCounters()
    job = cluster.submit(gang())
    first = replace(
        cluster.world.attempts.pop(job),
        placed_at=cluster.world.jobs[job].submitted_at + 7,
    )
    queue = cluster.world.jobs[job].spec.queue
    counts.take_in(cluster.world, Changes(attempts=(first,)))
    cluster.world.attempts[job] = first
    second = replace(first, number=AttemptNumber(2), placed_at=first.placed_at + 100)
    counts.take_in(cluster.world, Changes(attempts=(second,)))
    assert (counts.waits[queue].total, counts.starts[queue]) == (7.0, 2)


def test_an_end_is_counted_once_with_its_cause() -> None:
    cluster, counts = Cluster(node("n1")), HeadCounters()
    job = cluster.submit(gang())
    ended = replace(cluster.world.attempts[job], ended_at=9.0, cause=Cause.USER)
    counts.take_in(cluster.world, Changes(attempts=(ended,)))
    cluster.world.attempts[job] = ended
    counts.take_in(cluster.world, Changes(attempts=(replace(ended, quote="why"),)))
    assert counts.failures == {Cause.USER: 1}


def test_the_loss_of_a_preemption_is_counted_once() -> None:
    counts = HeadCounters()
    victim = Receipt(
        job=JobId("j1"), attempt=AttemptNumber(1), kind=ReceiptKind.PREEMPTION, cause=Cause.NONE,
        culprit="", evidence="", steps_lost=None, gpu_seconds_lost=330.0, seen_at=1.0,
    )  # fmt: skip
    taking = replace(
        victim, job=JobId("j2"), kind=ReceiptKind.TAKING, others=(victim.job,)
    )
    counts.take_in(Cluster(node("n1")).world, Changes(receipts=(victim, taking)))
    assert counts.lost_gpu_seconds == {"preemption": 330.0}
    assert counts.interruptions == {"preemption": 1}
