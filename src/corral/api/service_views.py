"""Views of services for the API."""

from dataclasses import asdict
from typing import Any

from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.job_visibility import CallerView, as_job
from corral.api.route_rights import LOGS
from corral.control import Control
from corral.control.token_cost import million_token_cost
from corral.domain.ids import JobId
from corral.domain.job_states import JobState
from corral.domain.observed_state import Seen
from corral.domain.service import ReplicaRow, Service
from corral.domain.units import counted
from corral.domain.world import World
from corral.wire import api
from corral.wire import service_answers as wire
from corral.wire.written_service import written_service

NEWEST_EVENTS = 20


def service_row(house: House, sight: CallerView, service: Service) -> wire.ServiceRow:
    """Return a service as a row of a listing."""
    return wire.ServiceRow.of(service, **_common_fields(house, sight, service))


async def service_view(
    house: House, sight: CallerView, caller: Caller, service: Service
) -> wire.ServiceView:
    """Return a service with its replicas, revisions and newest events. Its spec is left
    out for callers who may not read the logs of its replicas."""
    events = await house.control.store.events(
        after=0, job=service.id, limit=NEWEST_EVENTS, newest=True
    )
    has_log_access = caller.may_on(as_job(service), key=LOGS)
    return wire.ServiceView.of(
        service,
        **_common_fields(house, sight, service),
        spec=written_service(service.spec) if has_log_access else None,
        revisions=[wire.RevisionView.of(revision) for revision in service.revisions],
        replica_list=[
            replica_view(house.control, sight, service, row) for row in service.replicas
        ],
        events=[
            api.EventView.of(event).model_copy(update={"text": sight.text(event.text)})
            for event in events
        ],
        failed_starts=service.fruitless + service.trial_fruitless,
        last_end=sight.text(service.last_end),
        retry_at=service.trial_retry_at
        if service.trial_fruitless
        else service.retry_at,
        canary_passed=service.passed,
        turned_back=service.turned_back,
        turned_back_reason=sight.text(service.turned_back_reason),
        million_token_cost=await million_token_cost(house.control, service),
        currency=house.control.world.queues.currency,
    )


def _common_fields(house: House, sight: CallerView, service: Service) -> dict[str, Any]:
    return {
        "reason": sight.text(service.reason),
        "rates": rates_of(house.control, service),
        "url": house.settings.gateway_url(),
    }


def rates_of(control: Control, service: Service) -> wire.ServiceRatesView:
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
    if row.ready_at is not None:
        return ""
    if job.state is not JobState.RUNNING:
        return control.reason(job).sentence
    if probe is None or not probe.probe_text:
        return "it has not answered its probe yet"
    return f"it does not answer its probe: {probe.probe_text}"
