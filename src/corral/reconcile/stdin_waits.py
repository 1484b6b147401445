"""Attempts that reach their time limit while a rank waits for standard input."""

from dataclasses import replace

from corral.domain.attempt import Attempt
from corral.domain.failure_class import FailureKind
from corral.reconcile.attempts import seen_at
from corral.reconcile.changeset import Draft


def with_input_wait(draft: Draft, attempt: Attempt) -> Attempt:
    """Return the attempt with this class of failure where a rank of it waits for input
    now."""
    for node in attempt.nodes:
        seen = seen_at(draft, node, (attempt.job, attempt.number))
        if seen is not None and seen.waits_for_input is not None:
            return replace(attempt, failure=FailureKind.INPUT, failed_on=node)
    return attempt
