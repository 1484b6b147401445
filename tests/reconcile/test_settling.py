"""A rank's end that its machine explains a moment later is the cluster's, and nobody
pays twice."""

import pytest

from corral.domain.attempt import Attempt, Exit
from corral.domain.cause import Cause
from corral.domain.failure_class import FailureKind
from corral.domain.ids import AttemptNumber
from corral.domain.job import Retry
from corral.domain.job_states import JobState
from corral.domain.node_signal import FULL, SignalKind
from corral.domain.observed_state import Phase
from corral.health.health_rules import HealthRules
from corral.reconcile.await_node_faults import SETTLES_SECONDS
from corral.reconcile.latest_end import CLOCKS_SECONDS
from tests.worlds import Cluster, gang, node

ABORTED = Exit(signal=6)


class Failed:
    """A job of one GPU whose rank has just ended, seen gone; nobody has said why."""

    def __init__(
        self, exit: Exit = ABORTED, *, retry: Retry | None = None, gpus: int = 1
    ) -> None:
        self.cluster = Cluster(node("n1"), node("n2"))
        self.job = self.cluster.submit(gang(gpus=gpus, retry=retry or Retry()))
        seat = self.cluster.world.attempts[self.job].seats[0]
        self.node, self.gpu = seat.node, seat.gpus[0] if seat.gpus else None
        self.cluster.up(self.job)
        self.ended_at = self.cluster.wall
        whole = Exit(code=exit.code, signal=exit.signal, at=self.ended_at)
        self.cluster.end(self.job, whole, settle=False)

    def notice(
        self,
        kind: SignalKind,
        code: int | None = None,
        *,
        later: float = 0.0,
        named: bool = True,
    ) -> None:
        """The node tells it now; it befell the job so long after its end. `named`: the
        node knows yet who was there."""
        attempts = ((self.job, AttemptNumber(1)),) if named else ()
        gpu = self.gpu if kind == SignalKind.XID else None
        self.cluster.notice(self.node, kind, code, gpu=gpu, attempts=attempts)
        told = self.cluster.signals[self.node]
        fresh = told[-1].__class__(
            number=told[-1].number, at=self.ended_at + later, kind=kind, code=code,
            text=told[-1].text, gpu=gpu, attempts=attempts,
        )  # fmt: skip
        self.cluster.signals[self.node] = (*told[:-1], fresh)
        self.cluster.tick()

    def settle(self) -> None:
        for _ in range(int(SETTLES_SECONDS / 0.5) + 1):
            self.cluster.tick()

    @property
    def state(self) -> JobState | None:
        return self.cluster.world.state_of(self.job)


@pytest.mark.parametrize(
    "kind_and_code", [(SignalKind.XID, 79), (SignalKind.SXID, 22011)]
)
def test_what_broke_the_gpu_and_is_told_after_the_end_is_paid_by_the_cluster(
    kind_and_code: tuple[SignalKind, int],
) -> None:
    failed = Failed()
    assert failed.state == JobState.RECOVERING, (
        "it is not concluded before its machine may speak"
    )
    failed.notice(*kind_and_code)
    job = failed.cluster.world.jobs[failed.job]
    assert (job.infra_retries, job.user_retries) == (1, 0)
    assert job.state in (JobState.QUEUED, JobState.STARTING)
    events = failed.cluster.outcome.changes.events if failed.cluster.outcome else ()
    fault = next(one for one in events if one.kind == "fault")
    assert "counts as a fault of the cluster" in fault.text
    assert "killed by signal 6" in fault.text
    receipts = failed.cluster.outcome.changes.receipts if failed.cluster.outcome else ()
    assert [one.cause for one in receipts] == [Cause.INFRA]
    assert str(failed.node) in receipts[0].culprit


def test_a_node_that_has_let_the_attempt_go_need_not_name_it() -> None:
    failed = Failed()
    failed.notice(SignalKind.XID, 79, named=False)
    assert failed.cluster.world.jobs[failed.job].infra_retries == 1
    other = Failed()
    other.gpu = 1 - (other.gpu or 0)
    other.notice(SignalKind.XID, 79, named=False)
    other.settle()
    assert other.state == JobState.FAILED, "it was another GPU of the node"


def test_without_a_word_its_user_pays_when_the_moment_is_over() -> None:
    failed = Failed()
    states = [failed.state]
    failed.settle()
    assert [*states, failed.state] == [JobState.RECOVERING, JobState.FAILED]


def test_who_has_retries_of_their_own_keeps_them() -> None:
    failed = Failed(retry=Retry(user=2))
    failed.notice(SignalKind.XID, 79)
    assert failed.cluster.world.jobs[failed.job].user_retries == 0
    spent = Failed(retry=Retry(user=2))
    spent.settle()
    assert spent.cluster.world.jobs[spent.job].user_retries == 1


def test_a_fault_of_programs_and_one_that_came_after_the_end_explain_nothing() -> None:
    illegal = Failed()
    illegal.notice(SignalKind.XID, 31)
    illegal.settle()
    assert illegal.state == JobState.FAILED
    later = Failed()
    later.notice(SignalKind.XID, 79, later=CLOCKS_SECONDS + 1.0)
    later.settle()
    assert later.state == JobState.FAILED


def test_who_only_watches_health_charges_as_it_was_seen() -> None:
    failed = Failed()
    failed.cluster.health = HealthRules(mode="observe")
    failed.notice(SignalKind.XID, 79)
    failed.settle()
    assert failed.state == JobState.FAILED


def test_who_holds_no_gpu_waits_for_no_word() -> None:
    assert Failed(gpus=0).state == JobState.FAILED


def test_what_a_device_told_before_the_job_came_to_it_explains_nothing() -> None:
    failed = Failed()
    placed_at = failed.cluster.world.attempts[failed.job].placed_at
    failed.notice(
        SignalKind.XID, 79, later=placed_at - failed.ended_at - 1.0, named=False
    )
    failed.settle()
    assert failed.state == JobState.FAILED


def ended_with(line: str, code: int = 1) -> Failed:
    failed = Failed(Exit(code=code))
    exits = ((0, Exit(code=code, at=failed.ended_at)),)
    words = f'Traceback (most recent call last):\n  File "t.py", line 3, in f\n{line}\n'
    failed.cluster.say(failed.job, Phase.ENDED, exits=exits, tails=((0, words),))
    failed.cluster.tick()
    return failed


def first_of(failed: Failed) -> Attempt:
    """The attempt, as the last look has left it."""
    assert failed.cluster.outcome is not None
    rows = failed.cluster.outcome.changes.attempts
    return next(one for one in rows if (one.job, one.number) == (failed.job, 1))


def test_whose_words_name_a_broken_gpu_is_told_which_one() -> None:
    failed = ended_with("RuntimeError: CUDA error: uncorrectable ECC error encountered")
    failed.notice(SignalKind.XID, 48)
    attempt = first_of(failed)
    assert attempt.culprit == f"GPU {failed.gpu} of node {failed.node}"
    assert (attempt.failure, attempt.cause) == (FailureKind.GPU_FAULT, Cause.INFRA)


def test_a_port_that_went_down_explains_a_lost_peer() -> None:
    failed = ended_with("ConnectionResetError: [Errno 104] Connection reset by peer")
    failed.notice(SignalKind.PORT_DOWN)
    attempt = first_of(failed)
    assert attempt.culprit == f"node {failed.node}"
    assert (attempt.failure, attempt.cause) == (FailureKind.FABRIC, Cause.INFRA)


def test_whom_the_kernel_killed_for_memory_is_told_so_and_pays() -> None:
    failed = Failed(Exit(signal=9))
    failed.cluster.tick()
    failed.notice(SignalKind.MEMORY, FULL)
    attempt = first_of(failed)
    assert (attempt.failure, attempt.cause) == (FailureKind.HOST_MEMORY, Cause.USER)
    assert attempt.culprit == f"rank 0 on {failed.node}"


def test_who_only_watches_health_lets_nothing_explain_an_end() -> None:
    failed = ended_with("ConnectionResetError: [Errno 104] Connection reset by peer")
    failed.cluster.health = HealthRules(mode="observe")
    failed.notice(SignalKind.PORT_DOWN)
    assert failed.cluster.world.attempts[failed.job].cause == Cause.USER
