"""Checks of the recorded causes of failures, compared with what really happened to the
attempt."""

from corral.domain.attempt import Seat
from corral.domain.cause import Cause
from corral.domain.failure_class import FailureKind
from corral.domain.ids import AttemptNumber
from corral.domain.job import Job
from corral.domain.job_states import JobState, StopWhy
from corral.domain.node_signal import SignalKind
from corral.domain.observed_state import AttemptKey
from corral.domain.reason_code import ReasonCode
from corral.domain.world import Changes
from corral.simulate.oracles.in_place import is_paid_now
from corral.simulate.recorded_state import Books

ENDING_XIDS = (79, 94, 95, 119, 48)  # these end who is on that GPU
CLOCKS_SECONDS = 5.0  # so far apart may the clocks of nodes be


class FailureBlameOracle:
    """Checks I5, I7 and I17 for each failed attempt: it has a cause and the true exit
    code, and the right retry budget is charged."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._before: dict[str, Job] = {}
        self._fruitless: dict[str, int] = {}
        self._furthest: dict[str, int] = {}
        self._ended_at: dict[str, int] = {}

    def check(self, changes: Changes) -> None:
        for job in changes.jobs:
            previous_job = self._before.get(job.id)
            self._before[job.id] = job
            if previous_job is not None and previous_job.attempt:
                self._job(previous_job, job)

    def _job(self, before: Job, job: Job) -> None:
        key = (job.id, before.attempt)
        self._budgets(before, job, key)
        is_in_place = job.attempt != before.attempt and self._is_in_place(job)
        has_recovered = before.state == JobState.RECOVERING and job.state in (
            JobState.QUEUED,
            JobState.FAILED,
        )
        if is_in_place or has_recovered:
            self._explained(key)
        if is_in_place and not self._attempt_end_cause(key):
            self._books.breach("I7", f"{key} was restarted, but no fault had occurred")
        if (
            job.state == JobState.RECOVERING != before.state
            and not self._attempt_end_cause(key)
        ):
            self._books.breach(
                "I7", f"{key} ended as failed, but no fault had occurred"
            )
        if job.state == JobState.STOPPING and job.why == StopWhy.TIME != before.why:
            self._check_time_limit(job, key)
        if job.state == JobState.FAILED and not before.state.is_final:
            self._failed(job, key)

    def _is_in_place(self, job: Job) -> bool:
        return self._books.attempts[job.id, job.attempt].in_place

    def _paid_ends(self, before: Job, job: Job) -> list[AttemptKey]:
        """Return the attempts whose ends this commit may charge: the newest, and the one
        before it if its restart in place was not paid until now."""
        unpaid = before.unpaid
        keys = [(job.id, before.attempt)]
        if unpaid is not None and is_paid_now(before, job):
            keys.insert(0, (job.id, unpaid.attempt.number))
        return keys

    def _budgets(self, before: Job, job: Job, key: AttemptKey) -> None:
        own_exits = self._books.evidence.own[key]
        paid_keys = self._paid_ends(before, job)
        by_user = [k for k in paid_keys if self._is_users_end(k)]
        if job.user_retries - before.user_retries > len(by_user):
            infra_cause = self._infra(key) or "no fault occurred"
            self._books.breach(
                "I17", f"the end of {key} counts as the user's fault: {infra_cause}"
            )
        by_infra = [k for k in paid_keys if self._infra(k)]
        if job.infra_retries - before.infra_retries > len(by_infra):
            self._books.breach(
                "I17",
                f"the end of {key} counts as a fault of the cluster: ranks failed {own_exits}",
            )
        self._one_payer(before, job)
        if (
            job.user_retries > job.spec.retry.user
            or job.infra_retries > job.spec.retry.infra
        ):
            self._books.breach(
                "I17", f"{job.id} is tried again beyond its retry budget"
            )
        charged = job.user_retries - before.user_retries
        for paid_key in by_user[:charged]:
            self._crash_loop(job, self._books.attempts[paid_key].last_step or -1)

    def _is_users_end(self, key: AttemptKey) -> bool:
        return bool(self._books.evidence.own[key]) or self._hung(key)

    def _one_payer(self, before: Job, job: Job) -> None:
        """Check I17: once it is decided who pays for a restart in place, its failed
        attempt has the cause that pays, and one budget has paid."""
        unpaid = before.unpaid
        if unpaid is None or not is_paid_now(before, job):
            return
        key = (job.id, unpaid.attempt.number)
        cause = self._books.attempts[key].cause
        charged = job.user_retries - before.user_retries
        if cause == Cause.USER and charged < 1:
            self._books.breach("I17", f"no budget has paid for the end of {key}")
        if cause == Cause.INFRA and not self._infra(key):
            self._books.breach(
                "I17", f"the end of {key} is recorded as a fault of the cluster"
            )

    def _crash_loop(self, job: Job, reached: int) -> None:
        """Check I17: after three failures in a row without further progress, a job is
        not tried again."""
        further = reached > self._furthest.get(job.id, -1)
        if job.spec.checkpoint is None:  # it counts from 0 in each attempt
            further |= reached > 0 and reached != self._ended_at.get(job.id)
        self._ended_at[job.id] = reached
        self._furthest[job.id] = max(reached, self._furthest.get(job.id, -1))
        self._fruitless[job.id] = 1 if further else self._fruitless.get(job.id, 0) + 1
        if self._fruitless[job.id] >= 3:
            self._books.breach(
                "I17", f"{job.id} is tried again after three failures in a row"
            )

    def _explained(self, key: AttemptKey) -> None:
        """Check I14: a failed attempt has a recorded cause, a culprit and evidence, and
        that culprit really made it fail."""
        attempt = self._books.attempts[key]
        own_exits = self._books.evidence.own[key]
        if attempt.cause == Cause.NONE or not attempt.culprit or not attempt.evidence:
            self._books.breach(
                "I14", f"{key} failed, but no cause is recorded: {attempt}"
            )
        ranks = {f"rank {rank} on " for rank in own_exits}
        is_rank_end = attempt.cause == Cause.USER and not self._hung(key)
        if is_rank_end and not attempt.culprit.startswith(tuple(ranks)):
            self._books.breach(
                "I14", f"{key} is blamed on {attempt.culprit}, not on {own_exits}"
            )

    def _failed(self, job: Job, key: AttemptKey) -> None:
        own_exits = self._books.evidence.own[key]
        if job.reason_code in (ReasonCode.TIME_LIMIT, ReasonCode.DEADLINE):
            return
        if job.reason_code == ReasonCode.NODE_FAIL:
            if job.infra_retries < job.spec.retry.infra:
                self._books.breach(
                    "I17", f"{job.id} failed with retries left: {job.reason}"
                )
        elif self._hung(key):
            return
        elif not own_exits:
            self._books.breach(
                "I17", f"{job.id} failed by {job.reason}, but no rank failed by itself"
            )
        elif job.exit_code not in {
            rank_exit.shell_code for rank_exit in own_exits.values()
        }:
            self._books.breach(
                "I5",
                f"{job.id} has exit code {job.exit_code}, but its ranks exited {own_exits}",
            )

    def _check_time_limit(self, job: Job, key: AttemptKey) -> None:
        limit = job.spec.max_duration_seconds or 0.0
        books, evidence = self._books, self._books.evidence
        up_since = evidence.up_since.get(key, books.now())
        if not books.all_heard(seat.node for seat in books.attempts[key].seats):
            # this long can the head be sure of
            up_since = evidence.first_up.get(key, up_since)
        ran = books.now() - up_since
        if ran < limit - 3.0:
            self._books.breach(
                "I7",
                f"{key} was stopped after {ran:.1f} s of its limit of {limit:.0f} s",
            )

    def _attempt_end_cause(self, key: AttemptKey) -> str:
        own_exits = self._books.evidence.own[key]
        return f"its ranks exited with {own_exits}" if own_exits else self._infra(key)

    def _infra(self, key: AttemptKey) -> str:
        """Return which fault of the cluster hit the attempt; "" if there was none."""
        evidence, books = self._books.evidence, self._books
        if evidence.hurt[key]:
            return evidence.hurt[key][0]
        if self._hung(key):
            return "it hung"
        if key in evidence.faulty:
            return evidence.faulty[key]
        for seat in books.attempts[key].seats:
            if evidence.lost_since(seat.node, books.placed_at[key]):
                return f"{seat.node} lost its power"
            if books.newly_booted(seat.node, books.placed_at[key]):
                return f"{seat.node} had lost its power, which no head knew yet"
            if (key, seat.node) in books.cut_off:
                return f"{seat.node} was silent"
            if self._has_broken_gpu(key, seat):
                return f"{seat.node} reported a fault of its GPU soon after its end"
        if books.attempts[key].in_place:
            # the fault of its node may be older than the attempt
            previous = (key[0], AttemptNumber(key[1] - 1))
            if books.placed_at[key] + CLOCKS_SECONDS > books.now():
                return self._infra(previous)
        return ""

    def _hung(self, key: AttemptKey) -> bool:
        """Return whether the attempt was ended because it hung; HangOracle checks who
        pays for that."""
        is_recorded = self._books.attempts[key].failure == FailureKind.STALL
        return is_recorded and key in self._books.evidence.hangs

    def _has_broken_gpu(self, key: AttemptKey, seat: Seat) -> bool:
        """Return whether one of the attempt's GPUs on this node broke within a short
        time after its first exit: by clocks that differ, that may have been before."""
        ends = [rank_exit.at for rank_exit in self._books.evidence.exits[key].values()]
        return any(
            signal.kind == SignalKind.XID
            and signal.code in ENDING_XIDS
            and signal.gpu in seat.gpus
            and 0.0 <= signal.at - min(ends, default=0.0) <= CLOCKS_SECONDS
            for signal in self._books.machines[seat.node].disk.signals
        )
