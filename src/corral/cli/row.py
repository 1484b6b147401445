"""What a line of a listing says of a job."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.wire import api


def time_of(job: "api.Job", now: float) -> float:
    """Seconds that it has run, or since it was submitted while it never has."""
    until = job.ended_at if job.ended_at is not None else now
    return until - (job.started_at if job.started_at is not None else job.submitted_at)


def where_or_why(job: "api.Job") -> str:
    if job.state == "RUNNING":
        progress = job.progress
        step = f" step {progress.step}" if progress else ""
        of = f"/{progress.until}" if progress and progress.until else ""
        return ",".join(job.nodes) + step + of
    if job.state == "FAILED" and job.exit_code is not None and not job.reason:
        return f"exit code {job.exit_code}"
    return job.reason
