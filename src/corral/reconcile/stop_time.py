"""Time that a job needs to stop, from the request until its GPUs are free."""

from typing import Final

from corral.domain.job import Job
from corral.reconcile.changeset import Draft

KILL_SECONDS: Final = 1.0  # until the end of killed ranks is seen
# an earlier stop was faster than the next one may be
MEASURED_MARGIN: Final = 1.5


def stop_seconds(draft: Draft, job: Job) -> float:
    """Return within which time the job stops: by the longest stop of its earlier
    attempts, else by its grace, in which it also saves. A replica finishes its requests
    first."""
    role = job.spec.replica
    service = draft.service(role.service) if role is not None else None
    drain_seconds = service.spec.drain_seconds if service is not None else 0.0
    most = job.spec.grace_seconds + KILL_SECONDS
    if job.stop_seconds is not None and role is None:
        most = min(most, job.stop_seconds * MEASURED_MARGIN)
    return drain_seconds + most
