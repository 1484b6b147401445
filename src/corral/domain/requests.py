"""Requests of users. A request is durable before it is acknowledged, and requests are
granted in sequence."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from corral.domain.active_checks import CheckKind
from corral.domain.attempt import Save
from corral.domain.ids import (
    JobId,
    NodeId,
    QueueName,
    Sequence,
    ServiceName,
    UserName,
)
from corral.domain.job import JobSpec
from corral.domain.keep_rule import SaveKey
from corral.domain.queue import Queue
from corral.domain.relocation import RelocationRule
from corral.domain.service import ServiceSpec
from corral.domain.serving_roles import ServingRole
from corral.domain.units import written_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Submission of one job, or of the jobs of an array. `key` makes a repeated call
    harmless. `held`: the jobs are suspended from the start, until they are resumed."""

    specs: tuple[JobSpec, ...]
    key: str
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Request to resume a job. `save`: the older save to which the job goes back; None:
    its newest one."""

    job: JobId
    save: SaveKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """Request to stop the attempt of a job and put the job back in its place in the
    queue."""

    job: JobId


JobChange = Literal["cancel", "suspend", "resume", "requeue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeJobs:
    """Request for the same change of several jobs, granted in one pass. A job that is
    over when the request is granted stays as it is."""

    jobs: tuple[JobId, ...]
    to: JobChange

    def of(self, job: JobId) -> Cancel | Suspend | Resume | Requeue:
        """Return the request for the change of one of the jobs."""
        return _CHANGES[self.to](job=job)


_CHANGES: Final[Mapping[JobChange, type[Cancel | Suspend | Resume | Requeue]]] = {
    "cancel": Cancel,
    "suspend": Suspend,
    "resume": Resume,
    "requeue": Requeue,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SetJob:
    """Change of a waiting job. Fields that are not None are set. A new name of a job of
    an array gets the job's index as its ending."""

    job: JobId
    name: str | None = None
    queue: QueueName | None = None
    priority: int | None = None
    max_duration_seconds: float | None = None

    def of(self, spec: JobSpec) -> JobSpec:
        """Return the spec of a job with this change applied."""
        name, index = self.name, spec.array_index
        if name is not None and index is not None:
            name = f"{name}_{index}"
        return replace(
            spec,
            name=name or spec.name,
            queue=self.queue or spec.queue,
            priority=spec.priority if self.priority is None else self.priority,
            max_duration_seconds=self.max_duration_seconds or spec.max_duration_seconds,
        )

    def __str__(self) -> str:
        """Return the change as text."""
        stated_fields = {
            "name": self.name,
            "queue": self.queue,
            "priority": self.priority,
        }
        change_texts = [
            f"{field_name}: {value}"
            for field_name, value in stated_fields.items()
            if value is not None
        ]
        if self.max_duration_seconds is not None:
            change_texts.append(
                f"max_duration: {written_duration(self.max_duration_seconds)}"
            )
        return ", ".join(change_texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSave:
    """Request to pin, unpin or remove a save. `save` is the save at the time of the
    request: the records of an ended job are not in memory."""

    save: Save
    to: Literal["pin", "unpin", "rm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNode:
    """Change of a node.

    cordon: the node gets no new work. drain: it gets no new work, and its running jobs
    are moved. uncordon: both are undone, and its current faults are ignored until they
    occur again. clear: a person confirms that all faults are repaired. dead: its
    machine is off or was restarted; a person's statement counts as proof. remove: the
    node leaves the cluster.
    """

    node: NodeId
    to: Literal["cordon", "drain", "uncordon", "clear", "dead", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonSuspects:
    """Permission by a person to cordon all nodes that are suspect when the request is
    granted, beyond the limit of the breaker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckNodes:
    """Request to check these nodes as soon as nothing runs on them, within
    `max_wait_seconds`. LINK checks each node with the next one, in a ring; the two
    nodes identify each other by `secret`."""

    nodes: tuple[NodeId, ...]
    kinds: tuple[CheckKind, ...]
    paths: tuple[str, ...] = ()
    seconds: float = 5.0
    max_wait_seconds: float = 60.0
    secret: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLabels:
    """Request to set labels of a node, which override the labels that it declares. None
    removes the label."""

    node: NodeId
    labels: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetQueues:
    """Request to change the queues. With `whole`, `queues` replace all present ones.
    Without it, they are added or changed, and the queues in `removed` are deleted.

    None for `half_life_seconds`, `min_runtime_seconds` or `currency` keeps the current
    value. The other values are set as for a whole tree. `changes` are the resulting
    changes at the time of the request, one line each, for the audit log.
    """

    queues: tuple[Queue, ...]
    whole: bool
    half_life_seconds: float | None = None
    min_runtime_seconds: float | None = None
    currency: str | None = None
    relocation: RelocationRule | None = None
    rack_locality_delay_seconds: float = 0.0
    pod_locality_delay_seconds: float = 0.0
    changes: tuple[str, ...] = ()
    removed: tuple[QueueName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyService:
    """Request to make a service, or to change it. If its replicas must change, this is
    a new revision.

    `key_seed` is the random secret of a new service; an existing one keeps its own.
    """

    spec: ServiceSpec
    key_seed: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleService:
    """Request to change how many replicas a service may have; with a role, those of
    this role."""

    service: ServiceName
    min_replicas: int
    max_replicas: int
    role: ServingRole = ServingRole.WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBackService:
    """Request to serve an earlier revision again: the one with this number, or None for
    the one before. A trial is ended; without one, the earlier spec becomes a new
    revision, without a trial."""

    service: ServiceName
    revision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopService:
    """Request to end a service, after its replicas have finished what is under way."""

    service: ServiceName


Asked = (
    Submit
    | Cancel
    | Suspend
    | Resume
    | Requeue
    | ChangeJobs
    | SetJob
    | ChangeSave
    | SetNode
    | CordonSuspects
    | CheckNodes
    | SetLabels
    | SetQueues
    | ApplyService
    | ScaleService
    | RollBackService
    | StopService
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRequest:
    """Request with its user and time. `sequence` is assigned by the store and gives the
    order of granting."""

    sequence: Sequence
    by: UserName
    at: float
    asked: Asked
