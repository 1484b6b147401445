"""The end of an attempt after all its ranks have gone: what happens to the job, whether
the user or the cluster is charged, and the receipt."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from corral.domain.attempt import Attempt, SeatState
from corral.domain.cause import Cause
from corral.domain.event_kind import EventKind
from corral.domain.failure_class import FAILURES, FailureKind
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState, StopWhy
from corral.domain.reason_code import CODE_OF_STOP, ReasonCode
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.retry_delay import MOST_RECENT, recent_faults, retry_delay_seconds
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.unpaid_restart import UnpaidRestart
from corral.reconcile.attained_service import (
    ran_by,
    restart_seconds,
    with_all,
    with_kept,
)
from corral.reconcile.await_node_faults import is_settling
from corral.reconcile.changeset import Draft
from corral.reconcile.failed_nodes import avoid_failed_node, count_node_fault
from corral.reconcile.failure_counts import count_end
from corral.reconcile.in_place import begin_in_place, may_restart_in_place
from corral.reconcile.job_progress import (
    CRASH_LOOP,
    has_progressed,
    with_reached_step,
)
from corral.reconcile.preemption.takings import settle_taking
from corral.reconcile.unpaid_restarts import charge_user

# A program can claim a fault of the cluster by its exit code or by what it prints. Real
# faults that nothing else shows are few; with more, the job's own budget pays.
MOST_CLAIMS: Final = 100
MOST_FRUITLESS_CLAIMS: Final = 10  # in a row without progress

_STOPPED: Final = {
    StopWhy.CANCEL: JobEvent.STOPPED_CANCELLED,
    StopWhy.SUSPEND: JobEvent.STOPPED_SUSPENDED,
    StopWhy.PREEMPT: JobEvent.STOPPED_PREEMPTED,
    StopWhy.REQUEUE: JobEvent.STOPPED_PREEMPTED,
    StopWhy.DRAIN: JobEvent.STOPPED_PREEMPTED,
    StopWhy.TIME: JobEvent.STOPPED_TIME,
}
_GIVE_UP_CODES: Final[Mapping[FailureKind | None, ReasonCode]] = {
    FailureKind.HOST_MEMORY: ReasonCode.OUT_OF_MEMORY,
    FailureKind.STALL: ReasonCode.HANG,
}
_RECEIPTS: Final = {
    StopWhy.SUSPEND: ReceiptKind.SUSPENSION,
    # for no other job: a drain or a requeue of an older version
    StopWhy.PREEMPT: ReceiptKind.REQUEUE,
    StopWhy.REQUEUE: ReceiptKind.REQUEUE,
    StopWhy.DRAIN: ReceiptKind.DRAIN,
    StopWhy.TIME: ReceiptKind.TIMEOUT,
}


# their receipts also state the cost of the restart
_RESTARTS: Final = frozenset({ReceiptKind.RELOCATION, ReceiptKind.SHRINK})


def conclude(draft: Draft, job: Job) -> None:
    """Let the job continue once nothing of its attempt is left on its nodes.

    A recovering job does not wait for a seat that is UNREACHABLE, because its attempt
    is fenced. A job that is stopped on request does wait: it does not count as stopped
    while its ranks may still run. A recovering job waits until it is clear who pays for
    the restart before this end.
    """
    attempt = draft.attempt(job.id)
    if attempt is None or not job.state.is_leaving:
        return
    seat_states = {allocation.state for allocation in draft.seats_of(attempt)}
    if job.state == JobState.RECOVERING and seat_states <= {SeatState.UNREACHABLE}:
        if not _is_read(draft, attempt) or job.unpaid is not None:
            return
        if may_restart_in_place(draft, job, attempt) and _can_pay(draft, job, attempt):
            _restart_in_place(draft, job, attempt)
        elif not is_settling(draft, job, attempt):
            _recover_job(draft, job, attempt)
    elif (
        job.state == JobState.STOPPING and not seat_states and _is_read(draft, attempt)
    ):
        _conclude_stopped(draft, job, attempt)


def _is_read(draft: Draft, attempt: Attempt) -> bool:
    """Return whether the last output of all the attempt's ranks has been read. The
    charge and the reason depend on that output."""
    return (attempt.job, attempt.number) not in draft.unread


def _conclude_stopped(draft: Draft, job: Job, attempt: Attempt) -> None:
    job = charge_user(draft, job)
    stop_reason = job.why or StopWhy.CANCEL
    sleeps = job.reason_code is ReasonCode.SLEEP
    ended_attempt = attempt
    # one that had failed before it was stopped keeps its cause
    if attempt.cause == Cause.NONE:
        ended_attempt = replace(
            attempt,
            ended_at=draft.now.wall,
            cause=Cause.REQUEST,
            culprit=f"job {attempt.gave_way_to}"
            if attempt.gave_way_to
            else str(stop_reason),
            evidence=job.reason,
        )
        draft.put_attempt(ended_attempt)
    receipt: Receipt | None = None
    if stop_reason in _RECEIPTS and not sleeps:
        receipt = _build_receipt(
            draft,
            ended_attempt,
            _receipt_kind(stop_reason, ended_attempt)
            if ended_attempt is not attempt
            else ReceiptKind.FAILURE,
        )
        draft.receipts.append(receipt)
        text = f"{job.spec.name}: {receipt.text}"
        draft.tell(EventKind.RECEIPT, text, job=job.id, attempt=ended_attempt.number)
    reason = job.reason if stop_reason != StopWhy.TIME else _time_text(job, attempt)
    goes_on = stop_reason.is_requeue or stop_reason == StopWhy.SUSPEND
    ended_at = (
        ended_attempt.ended_at if ended_attempt.ended_at is not None else draft.now.wall
    )
    job = (
        with_kept(draft, job, ended_attempt)
        if goes_on
        else with_all(job, ended_attempt, ended_at)
    )
    job = replace(job, ran_seconds=ran_by(job, ended_attempt, ended_at))
    draft.put(with_reached_step(job, ended_attempt))
    draft.move(
        draft.jobs[job.id],
        _STOPPED[stop_reason],
        reason=reason,
        code=ReasonCode.SLEEP if sleeps else CODE_OF_STOP[stop_reason],
        stop_seconds=max(job.stop_seconds or 0.0, draft.now.wall - job.since),
    )
    if receipt is not None:
        settle_taking(draft, receipt)


def _receipt_kind(why: StopWhy, attempt: Attempt) -> ReceiptKind:
    """Return the kind of the receipt for this stop. If the user suspended a job that
    was to be moved, the receipt says suspended."""
    if why.is_requeue and attempt.gave_way_to is not None:
        if attempt.resized_to is not None:
            return ReceiptKind.SHRINK
        return ReceiptKind.RELOCATION if attempt.relocated else ReceiptKind.PREEMPTION
    return _RECEIPTS[why]


def _time_text(job: Job, attempt: Attempt) -> str:
    text = f"the job reached its max_duration of {job.spec.max_duration_seconds:.0f} s"
    return (
        text if attempt.failure is None else f"{text}; {FAILURES[attempt.failure].text}"
    )


def _recover_job(draft: Draft, job: Job, attempt: Attempt) -> None:
    if attempt.ended_at is None:
        attempt = draft.put_attempt(
            replace(attempt, ended_at=draft.now.wall, cause=Cause.INFRA)
        )
    draft.receipts.append(_build_receipt(draft, attempt, ReceiptKind.FAILURE))
    if attempt.cause == Cause.USER or attempt.is_claim:
        count_end(draft, job, attempt, failed=True)
    job = avoid_failed_node(job, attempt)
    ended_at = attempt.ended_at if attempt.ended_at is not None else draft.now.wall
    job = replace(job, ran_seconds=ran_by(job, attempt, ended_at))
    if attempt.is_claim:
        job = _with_claim(job, attempt)
    if (unrecordable_reason := draft.facts.unrecordable.get(job.id)) is not None:
        _give_up(draft, job, attempt, unrecordable_reason, ReasonCode.UNRECORDABLE)
    elif attempt.cause == Cause.USER or _claims_too_often(job, attempt):
        _charge_user(draft, job, attempt)
    else:
        _charge_infra(draft, job, attempt)
    count_node_fault(draft, attempt)


def _can_pay(draft: Draft, job: Job, attempt: Attempt) -> bool:
    """Return whether the job can pay now for the next attempt, by what is known so far,
    and need not wait before it. A fault of the cluster that follows another one soon
    has a delay."""
    if attempt.cause == Cause.USER:
        return job.user_retries < job.spec.retry.user
    is_first = not recent_faults(job.fault_times, draft.now.wall)
    is_believed = not _claims_too_often(_with_claim(job, attempt), attempt)
    return is_first and is_believed and job.infra_retries < job.spec.retry.infra


def _restart_in_place(draft: Draft, job: Job, attempt: Attempt) -> None:
    """Let the next attempt begin on the seats of this one. If a fault of a node may
    still explain the end, it is decided later who pays (0167)."""
    receipt = _build_receipt(draft, attempt, ReceiptKind.FAILURE)
    receipt = replace(receipt, in_place=True)
    draft.receipts.append(receipt)
    ended_at = attempt.ended_at if attempt.ended_at is not None else draft.now.wall
    job = replace(job, ran_seconds=ran_by(job, attempt, ended_at))
    job = with_kept(draft, job, attempt)
    fruitless = 1 if has_progressed(job, attempt) else job.fruitless + 1
    if is_settling(draft, job, attempt):
        unpaid = UnpaidRestart(attempt=attempt, receipt=receipt, since=job.since)
        job = replace(job, unpaid=unpaid, fruitless=fruitless)
    elif attempt.cause == Cause.USER:
        count_end(draft, job, attempt, failed=True)
        job = avoid_failed_node(job, attempt)
        job = replace(job, user_retries=job.user_retries + 1, fruitless=fruitless)
    else:
        if attempt.is_claim:
            count_end(draft, job, attempt, failed=True)
            job = _with_claim(avoid_failed_node(job, attempt), attempt)
        fault_times = recent_faults((*job.fault_times, draft.now.wall), draft.now.wall)
        job = replace(job, infra_retries=job.infra_retries + 1, fault_times=fault_times)
    why = f"{attempt.culprit}: {attempt.evidence}"
    if attempt.failure == FailureKind.STALL:
        why = attempt.evidence
    begin_in_place(draft, draft.put(with_reached_step(job, attempt)), attempt, why)


def _all_used(retries: int) -> str:
    """Return a text about used retries, "" without any. For example: ; all 3 retries
    are used."""
    retries_text = f"all {retries} retries are" if retries > 1 else "the only retry is"
    return f"; {retries_text} used" if retries else ""


def _charge_user(draft: Draft, job: Job, attempt: Attempt) -> None:
    fruitless = 1 if has_progressed(job, attempt) else job.fruitless + 1
    job = replace(with_reached_step(job, attempt), fruitless=fruitless)
    is_hang = attempt.failure == FailureKind.STALL  # its evidence names the rank
    reason = attempt.evidence if is_hang else f"{attempt.culprit}: {attempt.evidence}"
    if job.user_retries >= job.spec.retry.user:
        code = _GIVE_UP_CODES.get(attempt.failure, ReasonCode.NON_ZERO_EXIT)
        _give_up(draft, job, attempt, f"{reason}{_all_used(job.spec.retry.user)}", code)
    elif fruitless >= CRASH_LOOP:
        loop = (
            f"crash loop: {fruitless} failures in a row without progress; the last one: "
            f"{reason}"
        )
        _give_up(draft, job, attempt, loop, ReasonCode.CRASH_LOOP)
    else:
        _requeue_job(
            draft, replace(job, user_retries=job.user_retries + 1), attempt, reason
        )


def _charge_infra(draft: Draft, job: Job, attempt: Attempt) -> None:
    job = with_reached_step(job, attempt)
    reason = attempt.evidence
    if job.infra_retries >= job.spec.retry.infra:
        give_up_reason = (
            f"{reason}; all {job.spec.retry.infra} retries for faults of the cluster are "
            "used"
        )
        _give_up(draft, job, attempt, give_up_reason, ReasonCode.NODE_FAIL)
    else:
        _retry_after_fault(
            draft, replace(job, infra_retries=job.infra_retries + 1), attempt, reason
        )


def _with_claim(job: Job, attempt: Attempt) -> Job:
    fruitless = 1 if has_progressed(job, attempt) else job.fruitless_claims + 1
    return replace(job, claims=job.claims + 1, fruitless_claims=fruitless)


def _claims_too_often(job: Job, attempt: Attempt) -> bool:
    too_many = job.claims > MOST_CLAIMS or job.fruitless_claims > MOST_FRUITLESS_CLAIMS
    return attempt.is_claim and too_many


def _retry_after_fault(draft: Draft, job: Job, attempt: Attempt, why: str) -> None:
    """Retry after a fault of the cluster; with a delay if there were other faults
    recently."""
    now = draft.now.wall
    earlier = recent_faults(job.fault_times, now)
    job = replace(job, fault_times=(*earlier, now)[-MOST_RECENT:])
    delay_seconds = retry_delay_seconds(len(earlier))
    if delay_seconds == 0:
        _requeue_job(draft, job, attempt, why)
        return
    job = draft.put(with_kept(draft, job, attempt))
    draft.move(
        job,
        JobEvent.RETRY_DELAYED,
        reason=_begins_again(why),
        code=ReasonCode.RETRY_DELAY,
        retry_at=now + delay_seconds,
    )


def _requeue_job(draft: Draft, job: Job, attempt: Attempt, why: str) -> None:
    job = draft.put(with_kept(draft, job, attempt))
    draft.move(job, JobEvent.RETRY, reason=_begins_again(why), code=ReasonCode.REQUEUED)


def _begins_again(why: str) -> str:
    return f"the job starts again after: {why}"


def _give_up(
    draft: Draft, job: Job, attempt: Attempt, why: str, code: ReasonCode
) -> None:
    ended_at = attempt.ended_at if attempt.ended_at is not None else draft.now.wall
    job = draft.put(with_all(job, attempt, ended_at))
    draft.move(
        job, JobEvent.GIVE_UP, reason=why, code=code, exit_code=attempt.exit_code
    )


def _build_receipt(draft: Draft, attempt: Attempt, kind: ReceiptKind) -> Receipt:
    """Return the receipt of the attempt. Lost are the steps past the newest committed
    save, and the GPU time since that save."""
    saves = draft.saves_of(attempt.job)
    newest_save = saves[-1] if saves else None
    job = draft.job(attempt.job)
    begun_from = job.spec.origin_step if job is not None else None
    saved_step = newest_save.step if newest_save else begun_from
    lost_steps = None
    if attempt.last_step is not None:
        lost_steps = max(0, attempt.last_step - (saved_step or 0))
    ended_at = attempt.ended_at or draft.now.wall
    unsaved_since = attempt.running_at or ended_at
    if newest_save is not None:
        unsaved_since = max(unsaved_since, newest_save.at)
    gpus = sum(seat.gpu_millis for seat in attempt.seats) / MILLIS_PER_GPU
    preempting_job = attempt.gave_way_to if kind.is_preemption else None
    return Receipt(
        job=attempt.job,
        attempt=attempt.number,
        kind=kind,
        cause=attempt.cause,
        culprit=attempt.culprit,
        evidence=attempt.evidence,
        steps_lost=lost_steps,
        gpu_seconds_lost=gpus * max(0.0, ended_at - unsaved_since),
        seen_at=draft.now.wall,
        resumed_from_step=saved_step,
        # to stop is no work
        seconds_lost=0.0 if lost_steps == 0 else max(0.0, ended_at - unsaved_since),
        others=(preempting_job,) if preempting_job else (),
        restart_gpu_seconds=gpus * restart_seconds(attempt)
        if kind in _RESTARTS
        else 0.0,
    )
