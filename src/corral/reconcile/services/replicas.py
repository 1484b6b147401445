"""Making, draining and ending the replicas of a service, which are jobs."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from corral.domain.event_kind import EventKind
from corral.domain.ids import Sequence, sequence_of
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState, StopWhy
from corral.domain.reason_code import ReasonCode
from corral.domain.replica_jobs import replica_id, replica_spec
from corral.domain.role_rule import replica_noun
from corral.domain.service import ReplicaRow, Service, ServiceState
from corral.domain.serving_roles import ServingRole
from corral.domain.units import counted
from corral.reconcile.changeset import Draft
from corral.reconcile.services.finished_requests import has_finished
from corral.reconcile.services.lending import without_sleep
from corral.reconcile.services.probe_reports import (
    failing_seconds,
    failure_text,
    is_probe_failing,
    starting_seconds,
)
from corral.reconcile.services.replica_plan import DrainCause, LiveReplica
from corral.reconcile.services.replica_state import (
    count_end,
    count_fruitless,
    draining_row,
    replica_name,
)
from corral.reconcile.services.role_groups import plan_groups
from corral.reconcile.services.sleeping import put_to_sleep, wake

# Their ranks stop already, and the job does not come back.
_STOPS_ANYWAY: Final = frozenset({StopWhy.CANCEL, StopWhy.TIME})


def adjust_replicas(draft: Draft, service: Service) -> Service:
    """Return the service after the next step towards the replicas that it wants: some
    are made, and some begin to drain."""
    now = draft.now.wall
    rows = [row for row in service.replicas if row.draining_at is None]
    live = [_live_replica(draft, row) for row in rows]
    draining = frozenset(
        row.role for row in service.replicas if row.draining_at is not None
    )
    plans = plan_groups(service, live, now, draining=draining)
    plan, prefill = plans.answering, plans.prefill
    if plan.gives_way:
        service = replace(service, gave_way_at=now)
    if prefill.gives_way:
        group = replace(service.prefill, gave_way_at=now)
        service = replace(service, prefill=group)
    causes = dict(plan.drains) | dict(prefill.drains)
    for row in service.replicas:
        if causes.get(row.number) is DrainCause.PROBE_FAILS:
            service = _count_failing(draft, service, row)
    service = _drain(draft, service, causes)
    for row in service.replicas:
        if row.number in plan.sleeps:
            service = put_to_sleep(draft, service, row)
        elif row.number in plan.wakes:
            service = wake(draft, service, row)
    makes = [
        *((revision, ServingRole.PREFILL) for revision in prefill.makes),
        *(
            (revision, service.spec_of(revision).answering_role)
            for revision in plan.makes
        ),
    ]
    return _make(draft, service, makes)


def _live_replica(draft: Draft, row: ReplicaRow) -> LiveReplica:
    job = draft.job(row.job)
    if job is None:
        return LiveReplica(row=row, is_placed=False)
    attempt = draft.attempt(job.id)
    is_failing = attempt is not None and is_probe_failing(draft, attempt)
    return LiveReplica(
        row=row,
        is_placed=job.state.is_on_nodes,
        waits_since=job.since if job.state == JobState.QUEUED else None,
        failing_seconds=failing_seconds(draft, row),
        starting_seconds=starting_seconds(draft, row) if is_failing else None,
    )


def _count_failing(draft: Draft, service: Service, row: ReplicaRow) -> Service:
    """Record that a replica is replaced because its probe fails."""
    name = replica_name(service, row)
    failure = f"{name} {failure_text(draft, row)}"
    text = f"{name} is replaced, because it {failure_text(draft, row)}"
    draft.tell(EventKind.REPLICA_DRAINING, text, job=service.id)
    return count_fruitless(draft, service, row, failure)


def _drain(draft: Draft, service: Service, causes: Mapping[int, DrainCause]) -> Service:
    """Let the replicas with these numbers get no more requests."""
    if not causes:
        return service
    rows = tuple(
        draining_row(
            draft, service, row, _drain_text(draft, service, row, causes[row.number])
        )
        if row.number in causes
        else row
        for row in service.replicas
    )
    return replace(service, replicas=rows)


def _drain_text(
    draft: Draft, service: Service, row: ReplicaRow, cause: DrainCause
) -> str:
    name = service.name
    match cause:
        case DrainCause.TOO_MANY:
            is_prefill = row.role.is_prefill
            wanted = service.prefill.wanted if is_prefill else service.wanted
            return f"service {name} needs {counted(wanted, replica_noun(row.role))} now"
        case DrainCause.NODE_DRAINS:
            return (
                f"another replica of service {name} replaces it, because its node is "
                "being drained"
            )
        case DrainCause.OLD_REVISION | DrainCause.NO_ROOM:
            new = service.goal if row.revision != service.goal else service.trial
            text = f"revision {new} replaces revision {row.revision} of service {name}"
            if cause == DrainCause.NO_ROOM:
                text += ", and there is no room for both"
            return text
        case DrainCause.PROBE_FAILS:
            return f"it {failure_text(draft, row)}"


def drain_all(draft: Draft, service: Service) -> Service:
    """Let all replicas of a service that is being stopped get no more requests."""
    rows = tuple(
        draining_row(draft, service, row, f"service {service.name} is being stopped")
        for row in service.replicas
    )
    return replace(service, replicas=rows)


def _make(
    draft: Draft, service: Service, makes: Iterable[tuple[int, ServingRole]]
) -> Service:
    """Make one replica of each of these revisions and roles."""
    rows: list[ReplicaRow] = []
    for number, (revision, role) in enumerate(makes, start=service.next_number):
        job = _job_of_replica(draft, service, revision, number, role)
        draft.put(job)
        noun = replica_noun(role)
        text = f"{job.spec.name} is a new {noun} of revision {revision}"
        draft.tell(EventKind.REPLICA_MADE, text, job=service.id)
        rows.append(ReplicaRow(number=number, job=job.id, revision=revision, role=role))
    return replace(
        service,
        replicas=(*service.replicas, *rows),
        next_number=service.next_number + len(rows),
    )


def _job_of_replica(
    draft: Draft, service: Service, revision: int, number: int, role: ServingRole
) -> Job:
    """Return the job of a new replica. Its place among waiting jobs is the one of its
    service."""
    sequence = sequence_of(service.id)
    assert sequence is not None
    return Job(
        id=replica_id(service.id, number),
        spec=replica_spec(service, revision, number, role),
        owner=service.owner,
        submitted=Sequence(sequence),
        submitted_at=draft.now.wall,
        state=JobState.QUEUED,
        since=draft.now.wall,
        array=service.id,
    )


def end_drained(draft: Draft, service: Service) -> Service:
    """Return the service after ending its replicas that have finished their requests,
    or were given enough time for it. Replicas that hold no nodes leave it at once."""
    rows: list[ReplicaRow] = []
    for row in service.replicas:
        job = draft.job(row.job)
        if row.draining_at is not None and row.draining_at > draft.now.wall:
            row = replace(row, draining_at=draft.now.wall)  # the clock was set back
        if job is not None and _is_drained(draft, service, row, job):
            service = without_sleep(draft, service, row)
            row = replace(row, sleep=None)
            job = _cancel(draft, job, row.reason)
            if job.is_final:
                service = count_end(draft, service, row, job)
                continue
        rows.append(row)
    return replace(service, replicas=tuple(rows))


def _is_drained(draft: Draft, service: Service, row: ReplicaRow, job: Job) -> bool:
    if row.draining_at is None:
        return False
    if row.sleep is not None and row.sleep.finished_at is not None:
        return True
    has_served = job.state.is_live and row.attempt == job.attempt
    if not has_served and not row.is_finishing(job):
        return True
    return has_finished(draft, service, row, row.draining_at)


def note_finished(draft: Draft, service: Service) -> Service:
    """Return the service after noting which of its replicas that are being preempted
    have finished their requests: their ranks may be stopped."""
    rows: list[ReplicaRow] = []
    for row in service.replicas:
        job = draft.job(row.job)
        if (
            job is not None
            and row.is_finishing(job)
            and has_finished(draft, service, row, job.since)
        ):
            row = replace(row, finished_attempt=job.attempt)
        rows.append(row)
    return replace(service, replicas=tuple(rows))


def _cancel(draft: Draft, job: Job, reason: str) -> Job:
    """Cancel the job. Return it in its new state."""
    if job.state == JobState.STOPPING and job.why in _STOPS_ANYWAY:
        return job
    moved = draft.move(
        job,
        JobEvent.ASKED_CANCEL,
        reason=reason,
        code=ReasonCode.CANCEL,
        why=StopWhy.CANCEL,
    )
    if moved.state == JobState.STOPPING and moved.why != StopWhy.CANCEL:
        moved = draft.put(replace(moved, why=StopWhy.CANCEL, reason=reason))
    return moved


def end_service(draft: Draft, service: Service) -> Service:
    """Return a service that is being stopped as stopped, once no replica is left."""
    if service.replicas:
        return service
    text = f"service {service.name} is stopped"
    draft.tell(EventKind.SERVICE_STOPPED, text, job=service.id)
    return replace(service, state=ServiceState.STOPPED, stopped_at=draft.now.wall)
