"""Reports of agents about the probes of replicas that fail."""

from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.job_states import JobState
from corral.domain.observed_state import Seen
from corral.domain.service import ReplicaRow
from corral.domain.units import duration_text
from corral.reconcile.attempts import ran_seconds
from corral.reconcile.changeset import Draft
from corral.reconcile.seat_reports import seen_at

# A report that is older says nothing about a probe that fails now.
REPORT_AGE_SECONDS: Final = 10.0


def probe_report(draft: Draft, attempt: Attempt) -> Seen | None:
    """Return the report of the first node of the attempt, which probes it."""
    return seen_at(draft, attempt.nodes[0], (attempt.job, attempt.number))


def is_probe_failing(draft: Draft, attempt: Attempt) -> bool:
    """Return whether a recent report says that the probe fails. Without one it is not
    known: the fault may be one of the agent, the head, or the network between them."""
    seen = probe_report(draft, attempt)
    if seen is None or seen.is_ready is not False:
        return False
    age_seconds = draft.now.serving - draft.facts.nodes[attempt.nodes[0]].heard_at
    return age_seconds <= REPORT_AGE_SECONDS


def failing_seconds(draft: Draft, row: ReplicaRow) -> float | None:
    """Return for how long the probe of a replica that was ready has failed without a
    break; None if it does not fail, or it is not known."""
    if row.failing_since is None or draft.state_of(row.job) != JobState.RUNNING:
        return None
    return draft.now.wall - row.failing_since


def starting_seconds(draft: Draft, row: ReplicaRow) -> float | None:
    """Return for how long a replica has run without having been ready, by its nodes'
    reports, because the head's clock may be set; None if it was ready, or does not
    run."""
    attempt = draft.attempt(row.job)
    if (
        draft.state_of(row.job) != JobState.RUNNING
        or attempt is None
        or attempt.running_at is None
        or row.attempt == attempt.number
    ):
        return None
    return ran_seconds(draft, attempt)


def failure_text(draft: Draft, row: ReplicaRow) -> str:
    """Return what is wrong with a replica that is not ready, with the last output of
    its probe. For example: has run for 30 min without being ready"""
    attempt = draft.attempt(row.job)
    seen = probe_report(draft, attempt) if attempt is not None else None
    output = seen.probe_text if seen is not None else ""
    failed = failing_seconds(draft, row)
    if failed is not None:
        text = f"has not answered its probe for {duration_text(failed)}"
        return f"{text}: {output}" if output else text
    started = starting_seconds(draft, row) or 0.0
    text = f"has run for {duration_text(started)} without being ready"
    return f"{text}; its probe: {output}" if output else text
