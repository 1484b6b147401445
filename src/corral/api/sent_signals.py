"""Lookup of the user whose signal ended a job's attempt."""

from datetime import UTC, datetime
from typing import Final

from corral.control import Control
from corral.domain.attempt import Attempt
from corral.domain.failure_class import FailureKind
from corral.domain.job import Job
from corral.domain.users import AuditEntry
from corral.wire import signals
from corral.wire.job_parts import Failed

ENTRIES: Final = 1_000  # of the audit log since the attempt began, the newest first
WHAT: Final = "job.signal"
SOON_SECONDS: Final = 30.0  # a program that takes longer to end has another reason
CLOCK_SECONDS: Final = 2.0  # between the clocks of a node and the head
SHELL_SIGNALS: Final = 128
_BY_SIGNAL: Final = frozenset(
    {FailureKind.INTERRUPTED, FailureKind.KILLED, FailureKind.UNKNOWN}
)


async def with_sender(
    control: Control, job: Job, attempt: Attempt, failed: Failed
) -> Failed:
    """Return the failure unchanged, or with the name of the user who sent the signal
    that ended the attempt."""
    is_open = attempt.failure in _BY_SIGNAL or (attempt.exit_code or 0) > SHELL_SIGNALS
    if not is_open or attempt.ended_at is None or attempt.running_at is None:
        return failed
    entries = await control.store.audit(since=attempt.running_at, limit=ENTRIES)
    signal_entry = next(
        (entry for entry in entries if _ended_it(entry, job, attempt)), None
    )
    if signal_entry is None:
        return failed
    sent_time = datetime.fromtimestamp(signal_entry.at, UTC).strftime(
        "%Y-%m-%d %H:%M:%S UTC"
    )
    text = (
        f"{signal_entry.by} sent {signal_entry.detail} to the job at {sent_time} "
        "(corral stop --signal)"
    )
    next_step = "nothing if this was intended; otherwise submit the job again"
    return failed.model_copy(
        update={"evidence": f"{failed.evidence}: {text}", "next": next_step}
    )


def _ended_it(entry: AuditEntry, job: Job, attempt: Attempt) -> bool:
    """Return whether this audit entry is of the request whose signal ended the attempt."""
    if entry.what != WHAT or entry.on != job.id or not entry.accepted:
        return False
    assert attempt.ended_at is not None
    before_seconds = attempt.ended_at - entry.at
    number = signals.number_of(entry.detail.split(" ")[0])
    is_its = number is not None and attempt.exit_code == SHELL_SIGNALS + number
    return before_seconds >= -CLOCK_SECONDS and (
        is_its or before_seconds <= SOON_SECONDS
    )
