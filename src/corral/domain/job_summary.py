"""The part of a job that a listing shows. Only these fields are read, because a listing
may hold thousands of jobs."""

from dataclasses import dataclass

from corral.domain.ids import AttemptNumber, JobId, QueueName, Sequence, UserName
from corral.domain.job import DEFAULT_QUEUE, Job
from corral.domain.job_states import JobState
from corral.domain.reason_code import ReasonCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResources:
    """Resources that a listed job asks for on each node, with the same fields as in
    Resources."""

    gpu_millis: int = 0
    gpu_type: str | None = None
    cpu_millis: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSpec:
    """Spec of a listed job, with the same fields as in JobSpec."""

    name: str
    nodes: int = 1
    resources: ListedResources = ListedResources()
    queue: QueueName = DEFAULT_QUEUE
    priority: int = 0
    max_duration_seconds: float | None = None
    array_index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """Listed job, with the same fields as the validated Job from which it was read."""

    id: JobId
    spec: ListedSpec
    owner: UserName
    submitted: Sequence
    submitted_at: float
    state: JobState
    since: float
    attempt: AttemptNumber = AttemptNumber(0)
    reason: str = ""
    reason_code: ReasonCode = ReasonCode.NONE
    exit_code: int | None = None
    infra_retries: int = 0
    user_retries: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    ran_seconds: float = 0.0
    array: JobId | None = None

    @property
    def is_final(self) -> bool:
        return self.state.is_final


def listed(job: Job) -> ListedJob:
    spec, node_resources = job.spec, job.spec.resources
    return ListedJob(
        id=job.id,
        spec=ListedSpec(
            name=spec.name,
            nodes=spec.nodes,
            resources=ListedResources(
                gpu_millis=node_resources.gpu_millis,
                gpu_type=node_resources.gpu_type,
                cpu_millis=node_resources.cpu_millis,
                memory_bytes=node_resources.memory_bytes,
            ),
            queue=spec.queue,
            priority=spec.priority,
            max_duration_seconds=spec.max_duration_seconds,
            array_index=spec.array_index,
        ),
        owner=job.owner,
        submitted=job.submitted,
        submitted_at=job.submitted_at,
        state=job.state,
        since=job.since,
        attempt=job.attempt,
        reason=job.reason,
        reason_code=job.reason_code,
        exit_code=job.exit_code,
        infra_retries=job.infra_retries,
        user_retries=job.user_retries,
        started_at=job.started_at,
        ended_at=job.ended_at,
        ran_seconds=job.ran_seconds,
        array=job.array,
    )
