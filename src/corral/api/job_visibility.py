"""A caller's view of the jobs of other users. A hidden job does not exist for the
caller, not even by its name."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

from corral.api.auth import Caller
from corral.control import Control
from corral.domain.ids import JobId, QueueName, UserName, sequence_of
from corral.domain.ids import Sequence as RequestNumber
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.job_summary import ListedJob
from corral.domain.ledger import UsageRecord
from corral.domain.service import Service
from corral.domain.telemetry import GpuProcess, NodeSample
from corral.domain.visibility import OTHERS, may_see
from corral.domain.world import Event, World
from corral.ports.store import Store, Which
from corral.wire import api

HIDDEN: Final = "hidden"  # in place of the id of a job that holds something
MOST_SERVICES: Final = 1_000  # newest of the store, with those that are stopped
PAGE: Final = 10_000  # rows per query: with a text, each page repeats the search
EARLIER: Final = UserName("")  # an owner whose name another user has now
_ID: Final = re.compile(r"\bj\d{1,15}(?:_\d{1,9}){0,2}\b", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class _Spec(Protocol):
    @property
    def queue(self) -> QueueName: ...


class VisibleJob(Protocol):
    """Protocol of what has a job's visibility: a job, or a row of a listing."""

    @property
    def id(self) -> JobId: ...

    @property
    def owner(self) -> UserName: ...

    @property
    def submitted(self) -> int: ...

    @property
    def spec(self) -> _Spec: ...


J = TypeVar("J", bound=VisibleJob)


@dataclass(frozen=True)
class CallerView:
    """What one caller may see of jobs at one moment. `everything` is true if no job is
    hidden from the caller."""

    world: World
    caller: Caller

    @property
    def everything(self) -> bool:
        return not self.world.queues.hides or self.caller.oversees

    def of(self, queue: QueueName, owner: UserName) -> bool:
        """Return whether the caller may see jobs of this owner in this queue."""
        user, role = self.caller.name, self.caller.role
        return self.everything or may_see(self.world.queues, queue, owner, user, role)

    def job(self, job: VisibleJob) -> bool:
        """Return whether the caller may see the job. A job of an earlier user with the
        caller's name counts as a job of another user."""
        earlier = (
            job.owner == self.caller.name and job.submitted <= self.caller.jobs_after
        )
        return self.of(job.spec.queue, EARLIER if earlier else job.owner)

    def jobs(self, jobs: Iterable[J]) -> list[J]:
        """Return the jobs that the caller sees."""
        return [job for job in jobs if self.job(job)]

    def id(self, id: str) -> bool:
        """Return whether the caller may see the unfinished job with this id. For an id
        without an unfinished job, the result is true only if nothing is hidden from the
        caller."""
        job = self.world.jobs.get(JobId(id))
        return self.everything or (job is not None and self.job(job))

    def ids(self, ids: Iterable[JobId]) -> list[JobId]:
        """Return the ids of unfinished jobs. The id of each hidden job is replaced by
        one fixed placeholder."""
        return [id if self.id(id) else JobId(HIDDEN) for id in ids]

    def account(self, account: UsageRecord) -> UsageRecord:
        """Return the usage record. If its job is hidden, the job and its user are
        replaced by a placeholder, and the name is empty."""
        if self.of(account.queue, account.user):
            return account
        job = None if account.job is None else JobId(OTHERS)
        return replace(account, user=UserName(OTHERS), job=job, name="")

    def text(self, text: str) -> str:
        """Return the text, in which ids, names and owners of hidden jobs are replaced
        by a placeholder."""
        if self.everything:
            return text
        text = _ID.sub(lambda found: found[0] if self.id(found[0]) else HIDDEN, text)
        names = self._hidden_names
        return _WORD.sub(lambda found: HIDDEN if found[0] in names else found[0], text)

    @cached_property
    def _hidden_names(self) -> set[str]:
        jobs = self.world.jobs.values()
        visible_names = {str(job.spec.name) for job in jobs if self.job(job)} | {
            str(self.caller.name)
        }
        hidden = [job for job in jobs if not self.job(job)]
        return {
            str(hidden_name)
            for job in hidden
            for hidden_name in (job.spec.name, job.owner)
        } - visible_names

    def texts(self, texts: Iterable[str]) -> list[str]:
        return [self.text(text) for text in texts]


def sight_of(control: Control, caller: Caller) -> CallerView:
    return CallerView(control.world, caller)


def shown_detail(sight: CallerView, detail: api.JobDetail) -> api.JobDetail:
    """Return the job's details for its own page. Names of hidden jobs in the texts are
    replaced."""
    if sight.everything:
        return detail
    visible_fields = {
        "reason": sight.text(detail.reason),
        "receipts": _redact_receipts(sight, detail.receipts),
    }
    return detail.model_copy(update=visible_fields)


def shown_why(sight: CallerView, why: api.Why) -> api.Why:
    if sight.everything:
        return why
    visible_fields: dict[str, Any] = {
        name: sight.text(getattr(why, name)) for name in ("reason", "holders")
    }
    visible_fields["suggestions"] = sight.texts(why.suggestions)
    visible_fields["receipts"] = _redact_receipts(sight, why.receipts)
    return why.model_copy(update=visible_fields)


def _redact_receipts(
    sight: CallerView, receipts: Iterable[api.ReceiptView]
) -> list[api.ReceiptView]:
    return [
        receipt.model_copy(
            update={
                "text": sight.text(receipt.text),
                "evidence": sight.text(receipt.evidence),
                "others": [id if sight.id(id) else HIDDEN for id in receipt.others],
            }
        )
        for receipt in receipts
    ]


def shown_plan(sight: CallerView, planned: api.PlannedJob) -> api.PlannedJob:
    if sight.everything:
        return planned
    visible_fields: dict[str, Any] = {"reason": sight.text(planned.reason)}
    visible_fields["suggestions"] = sight.texts(planned.suggestions)
    visible_fields["stops"] = sight.texts(planned.stops)
    return planned.model_copy(update=visible_fields)


N = TypeVar("N", bound=api.NodeView)


def shown_node(sight: CallerView, node: N) -> N:
    """Return the node. The id of each hidden job on it is replaced by one fixed
    placeholder."""
    if sight.everything:
        return node
    exclusive_job = node.held_whole_by
    visible_fields: dict[str, Any] = {
        "jobs": sight.ids(JobId(job) for job in node.jobs)
    }
    visible_fields["lost_jobs"] = sight.ids(JobId(job) for job in node.lost_jobs)
    visible_fields["held_whole_by"] = (
        exclusive_job if exclusive_job is None or sight.id(exclusive_job) else HIDDEN
    )
    if isinstance(node, api.NodeDetail):
        visible_fields |= _shown_devices(sight, node)
        user_name = sight.caller.name
        visible_fields["refused_users"] = {
            user: reason
            for user, reason in node.refused_users.items()
            if user == user_name
        }
    return node.model_copy(update=visible_fields)


def _shown_devices(sight: CallerView, node: api.NodeDetail) -> dict[str, Any]:
    """Return what the sensors and the health checks of a node report. The ids of hidden
    jobs are replaced."""
    devices = [
        device.model_copy(update={"jobs": sight.ids(JobId(job) for job in device.jobs)})
        for device in node.devices
    ]
    conditions = [
        condition.model_copy(update={"text": sight.text(condition.text)})
        for condition in node.conditions
    ]
    return {
        "devices": devices,
        "conditions": conditions,
        "sample": None if node.sample is None else _shown_sample(sight, node.sample),
    }


def _shown_sample(sight: CallerView, sample: NodeSample) -> NodeSample:
    return replace(
        sample,
        gpus=tuple(
            replace(
                gpu,
                processes=tuple(
                    _shown_process(sight, process) for process in gpu.processes
                ),
            )
            for gpu in sample.gpus
        ),
    )


def _shown_process(sight: CallerView, process: GpuProcess) -> GpuProcess:
    if process.job is None or sight.id(process.job):
        return process
    return replace(process, job=JobId(HIDDEN), attempt=None)


def as_job(service: Service) -> Job:
    """Return the service in the form of a job. Rights and visibility of a service are
    those of a job of its owner in its queue."""
    return Job(
        id=service.id,
        spec=service.spec.replica,
        owner=service.owner,
        submitted=RequestNumber(sequence_of(service.id) or 0),
        submitted_at=service.created_at,
        state=JobState.RUNNING,
        since=service.created_at,
        array=service.id,
    )


async def _event_subject(control: Control, id: JobId) -> Job | None:
    """Return the job that an event is about. For an event of a service, this is the
    service in the form of a job."""
    job = control.world.jobs.get(id) or await control.store.job(id)
    if job is not None:
        return job
    stored = await control.store.services(limit=MOST_SERVICES)
    services = (*control.world.services.values(), *stored)
    return next((as_job(service) for service in services if service.id == id), None)


async def seen_events(
    control: Control, sight: CallerView, events: Sequence[Event]
) -> list[Event]:
    """Return the events that the caller may see: those of visible jobs and services,
    and those that belong to neither. Names of hidden jobs in their texts are replaced."""
    if sight.everything:
        return list(events)
    is_visible: dict[JobId, bool] = {}
    visible_events = []
    for event in events:
        if event.job is not None and event.job not in is_visible:
            subject = await _event_subject(control, event.job)
            is_visible[event.job] = subject is not None and sight.job(subject)
        if event.job is None or is_visible[event.job]:
            visible_events.append(replace(event, text=sight.text(event.text)))
    return visible_events


async def seen_jobs(
    store: Store,
    sight: CallerView,
    final: bool,
    limit: int,
    before: JobId | None,
    which: Which,
) -> Sequence[ListedJob]:
    """Return a page of the jobs that the caller may see, newest first."""
    if sight.everything:
        return await store.jobs(final=final, limit=limit, before=before, which=which)
    listed_jobs: list[ListedJob] = []
    while len(listed_jobs) < limit:
        page = await store.jobs(final=final, limit=PAGE, before=before, which=which)
        listed_jobs += sight.jobs(page)
        if len(page) < PAGE:
            break
        before = page[-1].id
    return listed_jobs[:limit]
