"""Applies users' requests to the draft, in the order in which they were acknowledged."""

from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import cast

from corral.domain.event_kind import EventKind
from corral.domain.ids import JobId, NodeId, job_id
from corral.domain.job import After, Job, JobSpec
from corral.domain.job_states import JobEvent, JobState, StopWhy
from corral.domain.placement_constraints import label_text
from corral.domain.reason_code import CODE_OF_STOP, ReasonCode
from corral.domain.requests import (
    ApplyService,
    Cancel,
    ChangeJobs,
    ChangeSave,
    CheckNodes,
    CordonSuspects,
    Requeue,
    Resume,
    RollBackService,
    ScaleService,
    SetJob,
    SetLabels,
    SetNode,
    SetQueues,
    StopService,
    StoredRequest,
    Submit,
    Suspend,
)
from corral.domain.store_url import is_store_url
from corral.domain.time_point import moment_text
from corral.reconcile.active_checks import ask_checks
from corral.reconcile.changeset import Draft
from corral.reconcile.dependencies import (
    held_by,
    is_delayed,
    release,
    waits_for,
)
from corral.reconcile.node_removal import remove, take_for_dead
from corral.reconcile.node_restrictions import cordon_suspects, restrict_by_person
from corral.reconcile.queue_tree import set_queues
from corral.reconcile.save_requests import change_save, go_back
from corral.reconcile.services import apply_service_request
from corral.schedule.capacity.node_room import mark_of


def grant(draft: Draft, requests: Seq[StoredRequest]) -> None:
    """Apply each request exactly once. Requests up to the sequence number `granted`
    were applied before and are skipped."""
    for request in requests:
        if request.sequence <= (draft.granted or draft.world.granted):
            continue
        try:
            _apply_wish(draft, request)
        except Exception as error:
            # durable, so it would come again at every tick, for ever
            draft.bugs.append((job_id(request.sequence), error))
            request_label = f"request {request.sequence} of {request.by}"
            text = f"{request_label} failed because of a bug in Corral: {error!r}"
            draft.tell(EventKind.REQUEST_FAILED, text)
        draft.granted = request.sequence


def grant_new(draft: Draft, request: StoredRequest) -> list[Job]:
    """Return the jobs that a request creates, in the state in which the next pass finds
    them: a job without unmet conditions is already queued. `draft` must not hold any
    changes yet."""
    grant(draft, [request])
    for job in list(draft.jobs.values()):
        release(draft, job)
    return list(draft.jobs.values())


def _apply_wish(draft: Draft, request: StoredRequest) -> None:
    match request.asked:
        case Submit():
            _submit_jobs(draft, request, request.asked)
        case Cancel() | Suspend() | Requeue() | Resume():
            _change_job(draft, request, request.asked)
        case ChangeJobs(jobs=jobs):
            for id in jobs:
                _change_job(draft, request, request.asked.of(id))
        case SetJob():
            _set_job(draft, request, request.asked)
        case ChangeSave():
            change_save(draft, request, request.asked)
        case SetNode():
            _set_node(draft, request, request.asked)
        case CordonSuspects():
            cordon_suspects(draft, request)
        case CheckNodes():
            ask_checks(draft, request, request.asked)
        case SetLabels():
            _set_labels(draft, request, request.asked)
        case SetQueues():
            set_queues(draft, request, request.asked)
        case ApplyService() | ScaleService() | RollBackService() | StopService():
            apply_service_request(draft, request, request.asked)


def _change_job(
    draft: Draft, request: StoredRequest, asked: Cancel | Suspend | Requeue | Resume
) -> None:
    match asked:
        case Cancel(job=id):
            _stop_job(draft, request, id, JobEvent.ASKED_CANCEL, StopWhy.CANCEL)
        case Suspend(job=id):
            _stop_job(draft, request, id, JobEvent.ASKED_SUSPEND, StopWhy.SUSPEND)
        case Requeue(job=id):
            _stop_job(draft, request, id, JobEvent.PREEMPTED, StopWhy.REQUEUE)
        case Resume(job=id, save=save):
            if save is not None:
                go_back(draft, request, id, save)
            _resume_job(draft, request, id)


def ids_of(request: StoredRequest) -> tuple[JobId, ...]:
    """Return the ids of the jobs of a Submit.

    A single spec has the id j17; several specs have j17_0, j17_1 and so on, by their
    position. The jobs of an array have the id of the array's spec, followed by their
    index: j17_4, or j17_1_4.
    """
    arrays = arrays_of(request)
    specs = cast(Submit, request.asked).specs
    return tuple(
        JobId(own_id if spec.array_index is None else f"{own_id}_{spec.array_index}")
        for own_id, spec in zip(arrays, specs, strict=True)
    )


def arrays_of(request: StoredRequest) -> tuple[JobId, ...]:
    """Return, for each job of a Submit, the id of its spec, which is the id of the
    array if the spec is one."""
    assert isinstance(request.asked, Submit)
    places: list[int] = []
    previous_spec: JobSpec | None = None
    for spec in request.asked.specs:
        goes_on = previous_spec is not None and _is_next_part(previous_spec, spec)
        places.append((places[-1] if places else -1) + (not goes_on))
        previous_spec = spec
    base = job_id(request.sequence)
    several = places[-1:] != [0]
    return tuple(
        JobId(f"{base}_{array_number}") if several else base for array_number in places
    )


def _is_next_part(last: JobSpec, spec: JobSpec) -> bool:
    """Return whether both specs belong to the same array and `spec` has the higher
    index."""
    if last.array_index is None or spec.array_index is None:
        return False
    return last.array_place == spec.array_place and last.array_index < spec.array_index


def _submit_jobs(draft: Draft, request: StoredRequest, asked: Submit) -> None:
    """Create all jobs of the request or, when one of them cannot be created, none."""
    ids = ids_of(request)
    jobs: list[Job] = []
    for id, array, spec in zip(ids, arrays_of(request), asked.specs, strict=True):
        dependencies = tuple(
            _resolve_dependency(dependency, ids, asked.specs)
            for dependency in spec.after
        )
        begins_at = spec.begin.of(request.at) if spec.begin is not None else 0.0
        later = begins_at > draft.now.wall
        reason = waits_for(dependencies) or (
            f"the job begins at {moment_text(begins_at)}" if later else ""
        )
        code = (
            ReasonCode.DEPENDENCY
            if dependencies
            else ReasonCode.BEGIN_TIME
            if later
            else ReasonCode.NONE
        )
        waits = JobState.HELD if dependencies or later else JobState.QUEUED
        if asked.held:
            reason = f"{request.by} submitted the job as held"
            code = ReasonCode.SUSPEND
        job = Job(
            id=id,
            spec=spec
            if dependencies == spec.after
            else replace(spec, after=dependencies),
            owner=request.by,
            submitted=request.sequence,
            submitted_at=request.at,
            state=JobState.SUSPENDED if asked.held else waits,
            since=request.at,
            reason=reason,
            reason_code=code,
            array=array if spec.array_index is not None else None,
            best_step=spec.origin_step if spec.origin_step is not None else -1,
            pinned_to=_node_of_origin(draft, spec),
        )
        jobs.append(job)
    for job in jobs:
        draft.put(job)
        text = f"{job.spec.name} is {job.state}, submitted by {request.by}"
        draft.tell(EventKind.SUBMITTED, text, job=job.id)


def _node_of_origin(draft: Draft, spec: JobSpec) -> NodeId | None:
    """Return the only node that can access the save from which the job starts. None if
    the job starts from no save, or if other nodes can access it too."""
    origin = spec.origin
    if origin is None or is_store_url(origin.path):
        return None
    node = draft.node(origin.node)
    if node is not None and mark_of(node, origin.path) is not None:
        return None
    return origin.node


def _resolve_dependency(after: After, ids: Seq[JobId], specs: Seq[JobSpec]) -> After:
    """Return the dependency with the id of the job. The wire format refers to jobs of
    the same submission as @0, @1, ..."""
    if not after.job.startswith("@"):
        return after
    spec_index = int(after.job[1:])
    return replace(after, job=ids[spec_index], name=specs[spec_index].name)


def _stop_job(
    draft: Draft, request: StoredRequest, id: JobId, event: JobEvent, why: StopWhy
) -> None:
    job = draft.job(id)
    if job is None:
        return  # over already: the request changes nothing
    sentence = f"requested by {request.by}"
    moved = draft.move(job, event, reason=sentence, code=CODE_OF_STOP[why])
    outranked = job.why is None or job.why.is_requeue or why == StopWhy.CANCEL
    if moved.state == JobState.STOPPING and outranked:
        moved = draft.put(replace(moved, why=why, reason=sentence))
    if moved.state == JobState.CANCELLED:
        draft.put(replace(moved, reason=sentence))


def _resume_job(draft: Draft, request: StoredRequest, id: JobId) -> None:
    """Resume the job. A job that is still stopping for its suspension is queued again
    once it has stopped."""
    job = draft.job(id)
    if (
        job is not None
        and job.state == JobState.STOPPING
        and job.why == StopWhy.SUSPEND
    ):
        reason = f"{request.by} asked to resume the job once it has stopped"
        draft.put(
            replace(
                job, why=StopWhy.REQUEUE, reason=reason, reason_code=ReasonCode.RESUMED
            )
        )
    elif job is not None and (is_delayed(job) or held_by(draft, job) is None):
        draft.move(job, JobEvent.ASKED_RESUME, reason=f"requested by {request.by}")


def _set_node(draft: Draft, request: StoredRequest, asked: SetNode) -> None:
    node = draft.node(asked.node)
    if node is None:
        return
    if asked.to == "dead":
        take_for_dead(draft, request, node)
        return
    if asked.to == "remove":
        remove(draft, request, node.id)
        return
    restricted_node = restrict_by_person(node, asked.to, draft.now.wall)
    if restricted_node != node:
        draft.nodes[node.id] = restricted_node
        draft.tell(
            EventKind(asked.to),
            f"node {node.id}: {asked.to}, requested by {request.by}",
            node=node.id,
        )


def _set_job(draft: Draft, request: StoredRequest, asked: SetJob) -> None:
    """Change the job's spec as requested. The spec stays unchanged if the job has begun
    meanwhile."""
    job = draft.job(asked.job)
    if job is not None and job.state.is_waiting:
        draft.put(replace(job, spec=asked.of(job.spec)))
        draft.tell(EventKind.CHANGED, f"{asked}, requested by {request.by}", job=job.id)


def _set_labels(draft: Draft, request: StoredRequest, asked: SetLabels) -> None:
    """Set the node's labels, which count from the next pass on. Jobs that run on the
    node continue, whatever labels they requested."""
    node = draft.node(asked.node)
    if node is None:
        return
    labels = tuple(sorted({**dict(node.set_labels), **dict(asked.labels)}.items()))
    if labels != node.set_labels:
        draft.nodes[node.id] = replace(node, set_labels=labels)
        label_pair = " ".join(label_text(*label) for label in asked.labels)
        draft.tell(
            EventKind.LABEL,
            f"node {node.id}: {label_pair}, requested by {request.by}",
            node=node.id,
        )
