"""Rules and limits that all stores share, so that they behave alike."""

from collections.abc import Iterable, Mapping, Set
from typing import Final

from corral.domain.errors import InvariantBroken
from corral.domain.ids import JobId
from corral.domain.job import Job
from corral.domain.job_states import FINAL, JobState
from corral.domain.requests import Asked, Submit
from corral.domain.world import Changes

KEEP_EVENTS: Final = 1_000_000
# granted submits that are remembered, to answer a repeated call
KEEP_KEYS: Final = 100_000
NEWEST_NAMES: Final = 1_000


def key_of(asked: Asked) -> str | None:
    """Return the idempotency key of the request, by which a repeated request is
    recognized; None if the request has no key."""
    return asked.key or None if isinstance(asked, Submit) else None


def age(job: Job) -> tuple[int, int, str]:
    """Return the sort key of a job by age. Sorting by it puts the oldest submission
    first, and the jobs of an array in order of their index."""
    index = job.spec.array_index
    return (job.submitted, -1 if index is None else index, job.id)


def is_part(job: Job, of: str) -> bool:
    """Return whether the job belongs to the array named `of`."""
    return job.array is not None and job.spec.name == f"{of}_{job.spec.array_index}"


def jobs_named_in(changes: Changes) -> set[JobId]:
    """Return the ids of all jobs that the changes touch or refer to."""
    accounts = {row.job for row in changes.accounts if row.job is not None}
    return _written_job_ids(changes) | set(changes.forgotten) | accounts


def _written_job_ids(changes: Changes) -> set[JobId]:
    return {job.id for job in changes.jobs} | {job for _, job in _references(changes)}


def check(
    changes: Changes,
    states: Mapping[JobId, JobState],
    *,
    granted: int,
    newest: int,
    holding: Iterable[JobId] = (),
) -> None:
    """Check that the changes are ones that a correct head would write.

    Args:
        states: the recorded states of `jobs_named_in(changes)`.
        granted, newest: sequence numbers of requests.
        holding: the forgotten jobs that still hold an allocation.

    Raises: InvariantBroken, with nothing written.
    """
    states_after = dict(states)
    for job in changes.jobs:
        state_before = states_after.get(job.id)
        if state_before in FINAL and job.state != state_before:
            raise InvariantBroken(
                f"job {job.id} cannot become {job.state}: it is {state_before}, which is "
                "final"
            )
        states_after[job.id] = job.state
    for reference, owner in _references(changes):
        if owner not in states_after:
            raise InvariantBroken(
                f"{reference} belongs to job {owner}, which is not in the store"
            )
    if changes.granted is not None and not granted <= changes.granted <= newest:
        raise InvariantBroken(
            f"requests are carried out up to number {granted} of {newest}; that cannot "
            f"become {changes.granted}"
        )
    _check_forgotten(changes, states, set(holding))


def _check_forgotten(
    changes: Changes, states: Mapping[JobId, JobState], holding: Set[JobId]
) -> None:
    written = _written_job_ids(changes) if changes.forgotten else set()
    for id in changes.forgotten:
        if states.get(id) not in FINAL:
            raise InvariantBroken(f"job {id} cannot be deleted: it is {states.get(id)}")
        if id in written or id in holding:
            raise InvariantBroken(
                f"job {id} cannot be deleted: it still holds an allocation, or has new rows"
            )


def _references(changes: Changes) -> Iterable[tuple[str, JobId]]:
    for attempt in changes.attempts:
        yield f"attempt {attempt.number}", attempt.job
    for allocation in changes.allocations:
        yield f"an allocation on {allocation.seat.node}", allocation.job
    for save in changes.saves:
        yield f"the save of step {save.step}", save.job
    for receipt in changes.receipts:
        yield f"a receipt of attempt {receipt.attempt}", receipt.job
    for reservation in changes.reservations:
        yield "a reservation", reservation.job
