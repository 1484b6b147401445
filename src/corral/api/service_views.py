"""Views of services for the API."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.job_visibility import CallerView, as_job
from corral.api.route_rights import LOGS
from corral.control import Control
from corral.control.token_cost import million_token_cost
from corral.domain.event_kind import EventKind
from corral.domain.ids import JobId
from corral.domain.job_states import JobState
from corral.domain.lending import ReplicaSleep, SleepPhase
from corral.domain.observed_state import Seen
from corral.domain.role_rule import RoleRule
from corral.domain.service import ReplicaRow, Service, ServiceState
from corral.domain.service_condition import (
    failed_start_count,
    failed_starts_text,
    last_end_of,
    turned_back_text,
)
from corral.domain.units import counted
from corral.domain.world import Event, World
from corral.wire import api
from corral.wire import service_answers as wire
from corral.wire.written_service import written_service

NEWEST_EVENTS = 20
READ_EVENTS = 400  # among which the scale events are
NEWEST_SCALE_EVENTS = 12
SCALE_EVENTS = frozenset(
    {
        EventKind.SERVICE_SCALED,
        EventKind.CANARY_BEGUN,
        EventKind.CANARY_PASSED,
        EventKind.CANARY_TURNED_BACK,
    }
)


def service_row(house: House, sight: CallerView, service: Service) -> wire.ServiceRow:
    """Return a service as a row of a listing."""
    return wire.ServiceRow.of(service, **_common_fields(house, sight, service))


async def service_view(
    house: House, sight: CallerView, caller: Caller, service: Service
) -> wire.ServiceView:
    """Return a service with its replicas, revisions and newest events. Its spec is left
    out for callers who may not read the logs of its replicas."""
    events = await house.control.store.events(
        after=0, job=service.id, limit=READ_EVENTS, newest=True
    )
    scale_events = [event for event in events if event.kind in SCALE_EVENTS]
    has_log_access = caller.may_on(as_job(service), key=LOGS)
    failed_starts = failed_start_count(service)
    return wire.ServiceView.of(
        service,
        **_common_fields(house, sight, service),
        spec=written_service(service.spec) if has_log_access else None,
        revisions=[wire.RevisionView.of(revision) for revision in service.revisions],
        replica_list=[
            replica_view(house.control, sight, service, row) for row in service.replicas
        ],
        events=_event_views(sight, events[-NEWEST_EVENTS:]),
        scale_events=_event_views(sight, scale_events[-NEWEST_SCALE_EVENTS:]),
        failed_starts=failed_starts,
        # without such a start, it would be of an earlier revision
        last_end=sight.text(last_end_of(service)) if failed_starts else "",
        retry_at=_retry_at(service),
        canary_passed=service.passed,
        turned_back=service.turned_back,
        turned_back_reason=sight.text(service.turned_back_reason),
        million_token_cost=await million_token_cost(house.control, service),
        currency=house.control.world.queues.currency,
    )


def _retry_at(service: Service) -> float | None:
    """Return when the next replica is made after one that was not ready for long."""
    if service.trial_fruitless:
        return service.trial_retry_at
    return service.retry_at if service.fruitless else service.prefill.retry_at


def _event_views(sight: CallerView, events: Sequence[Event]) -> list[api.EventView]:
    return [
        api.EventView.of(event).model_copy(update={"text": sight.text(event.text)})
        for event in events
    ]


def _common_fields(house: House, sight: CallerView, service: Service) -> dict[str, Any]:
    return {
        "reason": sight.text(service.reason),
        "roles": [_role_view(sight, service, rule) for rule in service.spec.roles],
        "problem": sight.text(_problem_of(house.control, service)),
        "rates": rates_of(house.control, service),
        "url": house.settings.gateway_url(),
    }


def _role_view(sight: CallerView, service: Service, rule: RoleRule) -> wire.RoleView:
    reason = service.prefill.reason if rule.role.is_prefill else service.reason
    return wire.RoleView.of(service, rule, sight.text(reason))


def _problem_of(control: Control, service: Service) -> str:
    """Return why the service has fewer ready replicas than it wants, or why its newest
    revision does not serve; "" if nothing is wrong."""
    if service.state is not ServiceState.ACTIVE:
        return ""
    text = failed_starts_text(service)
    prefills = service.prefill_ready_count >= service.prefill.wanted
    if not text and not (service.ready_count >= service.wanted and prefills):
        unready = (row for row in service.replicas if not row.is_ready)
        reasons = (
            (row, _unready_reason(control, row, None, probe_of(control, row.job)))
            for row in unready
            if row.draining_at is None
        )
        text = next(
            (
                f"{service.name}_{row.number} is {state_of(control.world, row.job)}: "
                f"{reason}"
                for row, reason in reasons
                if reason
            ),
            "",
        )
    return text or turned_back_text(service)


def rates_of(control: Control, service: Service) -> wire.ServiceRatesView:
    """Return what was measured of a service. One that is stopped has no rates: an active
    service may have its name."""
    if service.state is ServiceState.STOPPED:
        return wire.ServiceRatesView()
    rates = control.traffic.service_rates(service.name, control.serving_seconds())
    return wire.ServiceRatesView(**asdict(rates))


def replica_view(
    control: Control, sight: CallerView, service: Service, row: ReplicaRow
) -> wire.ReplicaView:
    """Return a replica with the state of its job, and why it is not ready."""
    job = control.world.jobs.get(row.job)
    attempt = control.world.attempts.get(row.job)
    facts = control.facts.services.get(service.name)
    under_way = None if facts is None else facts.under_way.get(row.job)
    probe = probe_of(control, row.job)
    probe_text = "" if probe is None or row.is_ready else probe.probe_text
    return wire.ReplicaView(
        number=row.number,
        job=row.job,
        name=f"{service.name}_{row.number}",
        state=state_of(control.world, row.job),
        nodes=list(attempt.nodes) if attempt is not None else [],
        attempt=0 if job is None else job.attempt,
        revision=row.revision,
        ready_at=row.ready_at,
        draining_at=row.draining_at,
        under_way=under_way,
        reason=sight.text(_unready_reason(control, row, under_way, probe)),
        probe_text=probe_text,
        sleep="" if row.sleep is None else row.sleep.phase.value,
        lent_to=[str(id) for id in _borrowers(sight, row)],
        role=row.role.value,
    )


def state_of(world: World, job: JobId) -> str:
    state = world.state_of(job)
    return "" if state is None else state.value


def probe_of(control: Control, job: JobId) -> Seen | None:
    """Return the report of the node that probes the replica's newest attempt; None
    without one."""
    attempt = control.world.attempts.get(job)
    if attempt is None:
        return None
    key = (job, attempt.number)
    for node in attempt.nodes:
        node_facts = control.facts.nodes.get(node)
        for seen in () if node_facts is None else node_facts.seen:
            if seen.key == key and seen.is_ready is not None:
                return seen
    return None


def _borrowers(sight: CallerView, row: ReplicaRow) -> list[JobId]:
    """Return the jobs that use GPUs of a sleeping replica."""
    sleep = row.sleep
    return sight.ids([borrow.job for borrow in sleep.borrows]) if sleep else []


def _sleep_text(sleep: ReplicaSleep, jobs: str) -> str:
    """Return what a sleeping replica does now, as text."""
    match sleep.phase:
        case SleepPhase.FALLING_ASLEEP:
            return "it falls asleep, because its service does not need it now"
        case SleepPhase.ASLEEP:
            return f"it sleeps; its GPUs are lent to {jobs}" if jobs else "it sleeps"
        case SleepPhase.WAKING:
            return f"it wakes, after {jobs} has stopped" if jobs else "it wakes"


def _unready_reason(
    control: Control, row: ReplicaRow, under_way: int | None, probe: Seen | None
) -> str:
    """Return why the replica gets no new requests, as text; "" if it is ready."""
    job = control.world.jobs.get(row.job)
    if job is None:
        return "its job has ended"
    if row.draining_at is not None:
        after = f" after {counted(under_way, 'request')}" if under_way else ""
        return f"it ends{after}: {row.reason}" if row.reason else f"it ends{after}"
    if row.sleep is not None:
        jobs = ", ".join(borrow.job for borrow in row.sleep.borrows)
        return _sleep_text(row.sleep, jobs)
    if row.ready_at is not None:
        return ""
    if job.state is not JobState.RUNNING:
        return control.reason(job).sentence
    if probe is None or not probe.probe_text:
        return "it has not answered its probe yet"
    return f"it is not ready: {probe.probe_text}"
