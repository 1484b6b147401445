"""State of a service's replicas, from their jobs and the reports of agents."""

from dataclasses import replace
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.event_kind import EventKind
from corral.domain.job import Job
from corral.domain.job_states import JobState, StopWhy
from corral.domain.reason_code import ReasonCode
from corral.domain.service import STEADY_SECONDS, ReplicaRow, Service
from corral.reconcile.changeset import Draft
from corral.reconcile.services.probe_reports import is_probe_failing, probe_report
from corral.reconcile.services.replica_address import accepted_address

LONGEST_RESTART_DELAY_SECONDS: Final = 60.0
# A replica that stops for these reasons does not come back.
_ENDING: Final = frozenset({StopWhy.CANCEL, StopWhy.SUSPEND, StopWhy.TIME})


def follow_replicas(draft: Draft, service: Service) -> Service:
    """Return the service with the present state of its replicas. Those whose jobs are
    over are left out."""
    rows: list[ReplicaRow] = []
    for row in service.replicas:
        job = draft.job(row.job)
        if job is None or job.is_final:
            service = count_end(draft, service, row, job)
            continue
        followed = _followed(draft, service, row, job)
        service = _with_start(draft, service, row, followed)
        is_steady = followed.ready_seconds_by(draft.now.wall) >= STEADY_SECONDS
        if is_steady and row.ready_seconds < STEADY_SECONDS:
            followed = replace(followed, ready_seconds=STEADY_SECONDS)
            service = _count_success(service, row)
        rows.append(followed)
    return replace(service, replicas=tuple(rows))


def _with_start(
    draft: Draft, service: Service, before: ReplicaRow, row: ReplicaRow
) -> Service:
    """Return the service with the measured start of an attempt that has become ready."""
    attempt = draft.attempt(row.job)
    if attempt is None or row.attempt == before.attempt:
        return service
    seconds = draft.now.wall - attempt.placed_at
    if seconds < 0:
        return service  # the clock was set back
    return replace(service, start_seconds=seconds)


def is_delayed(retry_at: float | None, now: float) -> bool:
    """Return whether the next replica must wait. A delay that is longer than any is of
    a clock that was set back, and does not count."""
    return (
        retry_at is not None and now < retry_at <= now + LONGEST_RESTART_DELAY_SECONDS
    )


def replica_name(service: Service, row: ReplicaRow) -> str:
    """Return the name of the replica's job."""
    return f"{service.name}_{row.number}"


def draining_row(
    draft: Draft, service: Service, row: ReplicaRow, reason: str
) -> ReplicaRow:
    """Return the row of a replica that gets no new requests from now on. One that is
    draining already stays as it is."""
    if row.draining_at is not None:
        return row
    if row.is_ready:
        text = f"{replica_name(service, row)} gets no new requests: {reason}"
        draft.tell(EventKind.REPLICA_DRAINING, text, job=service.id)
    return replace(row, draining_at=draft.now.wall, reason=reason)


def count_end(
    draft: Draft, service: Service, row: ReplicaRow, job: Job | None
) -> Service:
    """Record the end of a replica. If it ended by itself before it had been ready for
    STEADY_SECONDS, the next one of its revision is delayed. Its row is left to the
    caller.

    Args:
        job: Its job; None if it ended in an earlier pass.
    """
    name = replica_name(service, row)
    state = job.state if job is not None else draft.state_of(row.job)
    reason = (job.reason if job is not None else "") or row.reason
    end_text = f"{name} is {state or 'over'}{': ' if reason else ''}{reason}"
    draft.tell(EventKind.REPLICA_ENDED, end_text, job=service.id)
    ended_by_itself = state in (JobState.FAILED, JobState.DONE)
    if not ended_by_itself or row.draining_at is not None:
        return service
    return count_fruitless(draft, service, row, end_text)


def count_fruitless(
    draft: Draft, service: Service, row: ReplicaRow, end_text: str
) -> Service:
    """Return the service after the end of a replica that was not wanted. The next one
    of its revision is delayed, unless it had been ready for STEADY_SECONDS in all."""
    now = draft.now.wall
    ready_seconds = row.ready_seconds_by(now)
    if ready_seconds >= STEADY_SECONDS:
        return service
    text = f"{end_text}; it was never ready"
    if row.attempt:
        text = f"{end_text}; it was ready for {max(1, round(ready_seconds))} s only"
    if row.revision == service.trial and not is_delayed(service.trial_retry_at, now):
        count = service.trial_fruitless + 1
        retry_at = now + _delay_seconds(count)
        return replace(
            service, trial_fruitless=count, trial_retry_at=retry_at, last_end=text
        )
    if row.revision == service.current and row.role.is_prefill:
        group = service.prefill
        if is_delayed(group.retry_at, now):
            return service
        count = group.fruitless + 1
        retry_at = now + _delay_seconds(count)
        group = replace(group, fruitless=count, retry_at=retry_at, last_end=text)
        return replace(service, prefill=group)
    if row.revision == service.current and not is_delayed(service.retry_at, now):
        count = service.fruitless + 1
        retry_at = now + _delay_seconds(count)
        return replace(service, fruitless=count, retry_at=retry_at, last_end=text)
    # several that end in the same delay count as one
    return service


def _delay_seconds(fruitless: int) -> float:
    """Return the delay of the next replica after this many fruitless ends."""
    return min(LONGEST_RESTART_DELAY_SECONDS, 2.0 ** min(fruitless - 1, 10))


def _count_success(service: Service, row: ReplicaRow) -> Service:
    """Return the service after a replica has been ready for STEADY_SECONDS in all."""
    if row.revision == service.trial:
        return replace(service, trial_fruitless=0, trial_retry_at=None)
    if row.revision == service.current and row.role.is_prefill:
        return replace(service, prefill=service.prefill.without_failures)
    if row.revision == service.current:
        return replace(service, fruitless=0, retry_at=None, last_end="")
    return service


def _followed(draft: Draft, service: Service, row: ReplicaRow, job: Job) -> ReplicaRow:
    """Return the row of an unfinished replica by the state of its job."""
    attempt = draft.attempt(job.id)
    if attempt is None or not job.state.is_live:
        row = replace(
            row.not_ready(draft.now.wall), failing_since=None, leaving_since=None
        )
    else:
        row = _with_readiness(draft, service, row, job, attempt)
        row = _with_failure(draft, row, attempt)
        row = _with_leaving(draft, row, attempt)
    is_ending = job.state == JobState.SUSPENDED or (
        job.state == JobState.STOPPING and job.why in _ENDING
    )
    if row.sleep is not None and job.reason_code is ReasonCode.SLEEP:
        return row
    if is_ending and row.draining_at is None:
        return replace(row, draining_at=draft.now.wall, reason=job.reason)
    return row


def _with_readiness(
    draft: Draft, service: Service, row: ReplicaRow, job: Job, attempt: Attempt
) -> ReplicaRow:
    """Return the row with the result of the probe on the first node. Without a report,
    the last result holds."""
    name = replica_name(service, row)
    if row.attempt != attempt.number:
        row = row.not_ready(draft.now.wall)
    seen = probe_report(draft, attempt)
    is_ready = seen.is_ready if seen is not None else None
    if row.sleep is not None and (
        row.sleep.room_at is None or seen is None or seen.is_asleep
    ):
        return row.not_ready(draft.now.wall)
    if (
        seen is not None
        and is_ready
        and row.ready_at is None
        and job.state == JobState.RUNNING
    ):
        if row.attempt != attempt.number:
            text = f"{name} is ready, and takes requests"
            draft.tell(
                EventKind.REPLICA_READY, text, job=service.id, attempt=attempt.number
            )
        node = draft.node(attempt.nodes[0])
        return replace(
            row,
            ready_at=draft.now.wall,
            attempt=attempt.number,
            address=accepted_address(seen.address, node.address) if node else "",
        )
    if is_ready is False and row.ready_at is not None:
        output = seen.probe_text if seen is not None else ""
        text = f"{name} does not answer its probe any more"
        text += f": {output}" if output else ""
        draft.tell(
            EventKind.REPLICA_NOT_READY, text, job=service.id, attempt=attempt.number
        )
        return row.not_ready(draft.now.wall)
    return row


def _with_failure(draft: Draft, row: ReplicaRow, attempt: Attempt) -> ReplicaRow:
    """Return the row with the time since which the probe fails, if it was ready."""
    was_ready = row.attempt == attempt.number and row.ready_at is None
    if not was_ready or not is_probe_failing(draft, attempt):
        return replace(row, failing_since=None)
    since, now = row.failing_since, draft.now.wall
    # the clock may have been set back
    return (
        row if since is not None and since <= now else replace(row, failing_since=now)
    )


def _with_leaving(draft: Draft, row: ReplicaRow, attempt: Attempt) -> ReplicaRow:
    """Return the row with the time since which one of its nodes is being drained."""
    is_leaving = any(
        (node := draft.node(id)) is not None and node.draining for id in attempt.nodes
    )
    if is_leaving == (row.leaving_since is not None):
        return row
    return replace(row, leaving_since=draft.now.wall if is_leaving else None)
