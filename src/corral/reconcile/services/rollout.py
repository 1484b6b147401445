"""Replacement of a service's revision by a newer one: its trial, the verdict, and the
end of the old one."""

from dataclasses import replace
from typing import Final

from corral.domain.event_kind import EventKind
from corral.domain.service import (
    STEADY_SECONDS,
    ReplicaRow,
    Service,
)
from corral.domain.service_facts import ServiceFacts
from corral.domain.units import duration_text
from corral.reconcile.changeset import Draft
from corral.reconcile.services.probe_reports import failure_text, starting_seconds
from corral.reconcile.services.replica_plan import LONGEST_START_SECONDS
from corral.reconcile.services.replica_state import draining_row, replica_name

CRASH_LOOP: Final = (
    3  # replicas of a trial in a row that were not ready for long enough
)
# Counters of the gateways, and what follows from them, may be this old.
COUNTER_AGE_SECONDS: Final = 2.0


def facts_of(draft: Draft, service: Service) -> ServiceFacts | None:
    """Return the measurements of the service; None if there are none. A service that is
    new in this pass has none yet: they would be of an earlier one with this name."""
    if service.name not in draft.world.services:
        return None
    return draft.facts.services.get(service.name)


def begin_revision(service: Service, number: int, *, is_tried: bool) -> Service:
    """Return the service with a revision that is tried, or else replaces the current
    one. Without a ready replica of the current one, it replaces it at once."""
    if not _answers(service, service.current):
        return replace(_as_current(service, number), last_end="")
    return replace(service, trial=number, passed=not is_tried)


def end_trial(draft: Draft, service: Service, reason: str) -> Service:
    """Return the service without its trial. The replica on trial is drained at once;
    those of a revision that was replacing the current one are replaced themselves."""
    rows = tuple(
        draining_row(draft, service, row, reason)
        if row.revision == service.on_trial
        else row
        for row in service.replicas
    )
    return _without_trial(replace(service, replicas=rows))


def adopt_passed(service: Service) -> Service:
    """Return the service with the revision that is replacing the current one as the
    current one, if a replica of it is ready."""
    trial = service.trial
    if trial is None or not service.passed or not _answers(service, trial):
        return service
    return _without_trial(_as_current(service, trial))


def advance_rollout(draft: Draft, service: Service) -> Service:
    """Return the service with the next step of its trial: begun, passed, turned back,
    or at its end."""
    if service.trial is None:
        return service
    failure = _failed_start(draft, service, service.trial)
    if failure:
        return _turn_back(draft, service, failure)
    return (
        _finish_replacement(draft, service)
        if service.passed
        else _judge_trial(draft, service)
    )


def note_served(draft: Draft, service: Service) -> Service:
    """Record when the current revision first had a replica that was ready."""
    current = service.revision(service.current)
    if current.served_at is not None or not any(
        row.is_ready and row.revision == current.number and not row.role.is_prefill
        for row in service.replicas
    ):
        return service
    return service.with_revision(replace(current, served_at=draft.now.wall))


def _live(service: Service) -> list[ReplicaRow]:
    return [row for row in service.replicas if row.draining_at is None]


def _answers(service: Service, revision: int) -> bool:
    """Return whether a replica of the revision answers requests."""
    return any(
        row.is_ready and row.revision == revision and not row.role.is_prefill
        for row in _live(service)
    )


def _is_paired(service: Service, revision: int) -> bool:
    """Return whether a replica of the revision answers requests, and one prefills if
    the revision has prefill replicas."""
    has_prefill = service.spec_of(revision).prefill is not None
    return _answers(service, revision) and (
        not has_prefill
        or any(
            row.is_ready and row.revision == revision and row.role.is_prefill
            for row in _live(service)
        )
    )


def _as_current(service: Service, revision: int) -> Service:
    return replace(
        service,
        current=revision,
        fruitless=0,
        retry_at=None,
        prefill=service.prefill.without_failures,
    )


def _rows_of_trial(service: Service) -> list[ReplicaRow]:
    return [row for row in _live(service) if row.revision == service.trial]


def _without_trial(service: Service) -> Service:
    return replace(
        service,
        trial=None,
        trial_since=None,
        passed=False,
        trial_fruitless=0,
        trial_retry_at=None,
        gave_way_at=None,
        prefill=replace(service.prefill, gave_way_at=None),
    )


def _failed_start(draft: Draft, service: Service, trial: int) -> str:
    """Return why no replica of the trial becomes ready; "" if one may become ready
    yet."""
    if service.trial_fruitless >= CRASH_LOOP:
        return (
            f"{service.trial_fruitless} replicas in a row ended before they had been "
            f"ready for {STEADY_SECONDS:.0f} s; the last one: {service.last_end}"
        )
    for row in _rows_of_trial(service):
        if (starting_seconds(draft, row) or 0.0) >= LONGEST_START_SECONDS:
            return f"{replica_name(service, row)} {failure_text(draft, row)}"
    return ""


def _judge_trial(draft: Draft, service: Service) -> Service:
    trial, now = service.trial, draft.now.wall
    assert trial is not None
    is_ready = _is_paired(service, trial)
    since = service.trial_since
    if since is None or since > now:  # the clock was set back
        if not is_ready:
            return service
        text = (
            f"revision {trial} of service {service.name} is on trial: it gets "
            f"{100 * service.spec_of(trial).canary.share:g} % of the requests"
        )
        if since is None:
            draft.tell(EventKind.CANARY_BEGUN, text, job=service.id)
        return replace(service, trial_since=now)
    facts = facts_of(draft, service)
    # the measurements may still be those of an earlier trial
    is_recent = now - since >= COUNTER_AGE_SECONDS
    verdict = facts.verdict if facts is not None and is_recent else None
    verdict_reason = facts.verdict_reason if facts is not None else ""
    if verdict is False:
        return _turn_back(draft, service, verdict_reason)
    seconds = service.spec_of(trial).canary.seconds
    if not is_ready or not (verdict or now - since >= seconds):
        return service
    reason = verdict_reason if verdict else f"{duration_text(seconds)} are over"
    text = (
        f"revision {trial} of service {service.name} has passed its trial, and "
        f"replaces revision {service.current}{': ' if reason else ''}{reason}"
    )
    draft.tell(EventKind.CANARY_PASSED, text, job=service.id)
    return replace(service, passed=True)


def _finish_replacement(draft: Draft, service: Service) -> Service:
    """Return the service with the new revision as the current one, once no replica of
    another one is left and one of the new revision is ready."""
    trial = service.trial
    if trial is None or any(row.revision != trial for row in _live(service)):
        return service
    is_ready = _answers if service.prefill.wanted == 0 else _is_paired
    if service.wanted > 0 and not is_ready(service, trial):
        return service
    text = f"revision {trial} of service {service.name} serves all requests"
    draft.tell(EventKind.REVISION_SERVES, text, job=service.id)
    return _without_trial(_as_current(service, trial))


def _turn_back(draft: Draft, service: Service, reason: str) -> Service:
    trial = service.trial
    text = f"revision {trial} of service {service.name} was turned back"
    text += f": {reason}" if reason else ""
    draft.tell(EventKind.CANARY_TURNED_BACK, text, job=service.id)
    ended = end_trial(draft, service, text)
    return replace(ended, turned_back=trial, turned_back_reason=reason)
