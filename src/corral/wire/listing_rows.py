"""Rows of a listing that are encoded directly. They have the fields of `api.JobView`,
but avoid the cost of creating its objects."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec

from corral.domain.job import Job
from corral.domain.job_summary import ListedJob
from corral.domain.observed_state import Progress as TrainingProgress
from corral.domain.units import MILLIS_PER_CPU, MILLIS_PER_GPU
from corral.wire.job_parts import ProgressView

_PROGRESS: Final = tuple(ProgressView.model_fields)
_values_of: Final = attrgetter(*_PROGRESS)


class ShapeRow(msgspec.Struct):
    """Row with the fields of `job_parts.ShapeView`."""

    nodes: int
    gpus_per_node: float
    gpu_type: str | None
    cpus_per_node: float
    memory_bytes_per_node: int


class JobRow(msgspec.Struct):
    """Row with the fields of `api.JobView`."""

    id: str
    name: str
    state: str
    reason: str
    reason_code: str
    owner: str
    queue: str
    priority: int
    shape: ShapeRow
    nodes: Sequence[str]
    attempt: int
    exit_code: int | None
    submitted_at: float
    since: float
    started_at: float | None
    ended_at: float | None
    infra_retries: int
    user_retries: int
    array_index: int | None
    array: str | None
    max_duration_seconds: float | None
    progress: Mapping[str, Any] | None
    held_gpus: float | None
    ran_seconds: float
    running_since: float | None


def job_row(
    job: Job | ListedJob,
    *,
    reason: str,
    reason_code: str,
    nodes: Sequence[str] = (),
    progress: TrainingProgress | None = None,
    held_gpus: float | None = None,
    running_since: float | None = None,
) -> JobRow:
    spec, resources = job.spec, job.spec.resources
    return JobRow(
        job.id,
        spec.name,
        job.state,
        reason,
        reason_code,
        job.owner,
        spec.queue,
        spec.priority,
        ShapeRow(
            spec.nodes,
            resources.gpu_millis / MILLIS_PER_GPU,
            resources.gpu_type,
            resources.cpu_millis / MILLIS_PER_CPU,
            resources.memory_bytes,
        ),
        nodes,
        job.attempt,
        job.exit_code,
        job.submitted_at,
        job.since,
        job.started_at,
        job.ended_at,
        job.infra_retries,
        job.user_retries,
        spec.array_index,
        job.array,
        spec.max_duration_seconds,
        None
        if progress is None
        else dict(zip(_PROGRESS, _values_of(progress), strict=True)),
        held_gpus,
        job.ran_seconds,
        running_since,
    )


class ChangedRow(msgspec.Struct):
    """Row with the fields of `job_changes.ChangedJob`."""

    id: str
    name: str
    state: str
    array: str | None
    array_index: int | None


encode: Final = msgspec.json.Encoder().encode


def jobs_body(parts: Sequence[bytes]) -> bytes:
    """Return the body of `api.JobsView`. `parts`: encoded lists of rows, which are
    joined."""
    return (
        b'{"jobs":['
        + b",".join(
            encoded_rows[1:-1] for encoded_rows in parts if encoded_rows != b"[]"
        )
        + b"]}"
    )
