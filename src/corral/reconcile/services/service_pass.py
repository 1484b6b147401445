"""Decisions about services in one pass."""

from corral.domain.service import Service, ServiceState
from corral.reconcile.changeset import Draft
from corral.reconcile.invariants import check_replicas
from corral.reconcile.services.replica_count import set_wanted
from corral.reconcile.services.replica_state import follow_replicas
from corral.reconcile.services.replicas import (
    adjust_replicas,
    drain_all,
    end_drained,
    end_service,
    note_finished,
)
from corral.reconcile.services.rollout import advance_rollout, note_served
from corral.reconcile.services.sleeping import follow_sleep


def see_services(draft: Draft) -> None:
    """Follow the replicas of all services, and make, drain and end replicas as each of
    them needs. If a bug in Corral makes this fail for one service, that service stays
    as it was, and all others continue."""
    for service in draft.all_services():
        _see_guarded(draft, service)


def _see_guarded(draft: Draft, service: Service) -> None:
    jobs = {row.job: draft.jobs.get(row.job) for row in service.replicas}
    event_count = len(draft.events)
    try:
        changed = _next_state(draft, service)
        draft.put_service(changed)
        check_replicas(draft, changed)
    except Exception as error:
        draft.bugs.append((service.id, error))
        draft.put_service(service)
        del draft.events[event_count:]
        new_jobs = [
            id
            for id, job in draft.jobs.items()
            if job.array == service.id and id not in jobs
        ]
        for id in new_jobs:
            del draft.jobs[id]
        for id, job in jobs.items():
            draft.restore_job(id, job)


def _next_state(draft: Draft, service: Service) -> Service:
    service = note_finished(draft, follow_replicas(draft, service))
    service = follow_sleep(draft, service)
    if service.state == ServiceState.STOPPING:
        return end_service(draft, end_drained(draft, drain_all(draft, service)))
    service = set_wanted(draft, service)
    service = note_served(draft, advance_rollout(draft, service))
    service = adjust_replicas(draft, service)
    return end_drained(draft, service)
