"""Attempts that reach their time limit while a rank waits for standard input."""

from dataclasses import replace

from corral.domain.attempt import Attempt
from corral.domain.failure_class import FailureKind
from corral.reconcile.changeset import Draft
from corral.reconcile.seat_reports import seen_at


def with_input_wait(draft: Draft, attempt: Attempt) -> Attempt:
    """Return the attempt, with the failure kind INPUT and the node if one of its ranks
    waits for standard input now; otherwise unchanged."""
    for node in attempt.nodes:
        observation = seen_at(draft, node, (attempt.job, attempt.number))
        if observation is not None and observation.waits_for_input is not None:
            return replace(attempt, failure=FailureKind.INPUT, failed_on=node)
    return attempt
