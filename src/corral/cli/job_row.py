"""Text of one job in a list of jobs."""

from typing import TYPE_CHECKING

from corral.domain.units import span_text

if TYPE_CHECKING:
    from corral.wire import api


def time_of(job: "api.JobView", now: float) -> float:
    """Return the seconds that the job's attempts have run; for a job that has never
    run, the seconds since its submission."""
    end_time = job.ended_at if job.ended_at is not None else now
    if job.started_at is None:
        return end_time - job.submitted_at
    ran = job.ran_seconds or 0.0
    if job.running_since is not None:
        return ran + max(0.0, now - job.running_since)
    return ran or end_time - job.started_at  # older heads do not count it


def ends_text(progress: "api.ProgressView | None") -> str:
    """Return when a job is expected to end, for example: in 22 min. "" if the progress
    of its steps gives no estimate."""
    left_seconds = progress.left_seconds if progress is not None else None
    return "" if left_seconds is None else span_text(left_seconds, left_seconds)


def where_or_why(job: "api.JobView") -> str:
    if job.state == "RUNNING":
        progress = job.progress
        step = f" step {progress.step}" if progress else ""
        of = f"/{progress.until}" if progress and progress.until else ""
        end_text = ends_text(progress)
        return (
            ",".join(job.nodes) + step + of + (f", ends {end_text}" if end_text else "")
        )
    if job.state == "FAILED" and job.exit_code is not None and not job.reason:
        return f"exit code {job.exit_code}"
    return job.reason
