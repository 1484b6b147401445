"""Corral's own history as a log: the output of `corral ps --all --json`, and imported
jobs."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from corral.domain.imported import Imported
from corral.domain.units import MILLIS_PER_GPU
from corral.traces.traces_job import LoggedJob


def jobs_of_corral(lines: Iterable[str]) -> Iterator[LoggedJob]:
    """Yield the jobs of the listing."""
    return map(logged, json.loads("".join(lines))["jobs"])


def logged(job: Mapping[str, Any]) -> LoggedJob:
    """Convert a job of a listing. Its run time is from its first start to its end; -1
    if it has not started or not ended."""
    begun, end_time = job["started_at"], job["ended_at"]
    return LoggedJob(
        name=job["id"],
        queue=job["queue"],
        submitted=job["submitted_at"],
        duration=-1.0
        if begun is None or end_time is None
        else max(0.0, end_time - begun),
        gpus=job["shape"]["nodes"] * job["shape"]["gpus_per_node"],
        limit=job.get("max_duration_seconds") or 0.0,
        user=job["owner"],
        kind=job["name"],
    )


def logged_import(job: Imported) -> LoggedJob:
    return LoggedJob(
        name=job.id,
        queue=job.queue,
        submitted=job.submitted_at,
        duration=job.seconds,
        gpus=job.shape.gpu_millis / MILLIS_PER_GPU,
        limit=job.limit_seconds or 0.0,
        user=job.user,
        kind=job.name,
    )
