"""Requests that a replica still has to finish after it gets no new ones."""

from corral.domain.service import ReplicaRow, Service
from corral.reconcile.changeset import Draft
from corral.reconcile.services.rollout import COUNTER_AGE_SECONDS, facts_of


def has_finished(draft: Draft, service: Service, row: ReplicaRow, since: float) -> bool:
    """Return whether a replica that gets no new requests since this time has finished
    those that had begun, or was given enough time for it."""
    seconds = draft.now.wall - since
    if not 0.0 <= seconds < service.spec.drain_seconds:
        return True  # or the clock was set back
    facts = facts_of(draft, service)
    under_way = facts.under_way.get(row.job) if facts is not None else None
    return under_way == 0 and seconds >= COUNTER_AGE_SECONDS
