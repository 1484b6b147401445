"""Removal of old ended jobs, so that the data of a long-lived head does not grow
without limit."""

from collections.abc import Iterator, Set
from heapq import nsmallest
from typing import Final

from corral.domain.ids import JobId
from corral.domain.retention import Retention
from corral.domain.units import DAY_SECONDS
from corral.reconcile.changeset import Draft

MOST_AT_ONCE: Final = 200  # in one commit: no other waits long for it


def forget(draft: Draft, keep: Retention, spared: Set[JobId]) -> None:
    """Add ended jobs to `draft.forgotten`, so that they are deleted: jobs that ended
    too long ago, and the oldest ones while more than `keep.jobs` are stored. Jobs that
    something still refers to are kept.

    Args:
        spared: jobs named in a submission that is not applied yet. They are kept too.
    """
    end_times = draft.world.ended_at
    too_many = len(end_times) - keep.jobs
    latest = draft.now.wall - keep.seconds  # what ended before is too old
    if too_many <= 0 and min(end_times.values(), default=latest) >= latest:
        return
    needed = spared | set(_referenced_jobs(draft))
    removable_jobs = (
        (ended_at, id) for id, ended_at in end_times.items() if id not in needed
    )
    oldest = enumerate(nsmallest(MOST_AT_ONCE, removable_jobs))
    draft.forgotten += [
        id
        for age_rank, (ended_at, id) in oldest
        if age_rank < too_many or ended_at < latest
    ]


def _referenced_jobs(draft: Draft) -> Iterator[JobId]:
    """Yield the jobs that must be kept: those that an unfinished job waits for or
    starts from, that hold or reserve anything, that were just moved, or that a node
    reports."""
    for job in draft.all_jobs():
        if not job.is_final:
            yield from job.spec.needs
    yield from (allocation.job for allocation in draft.held())
    yield from draft.world.reservations
    yield from draft.reservations
    for receipt in draft.world.relocations.values():
        # what it has cost still counts
        if receipt.seen_at > draft.now.wall - DAY_SECONDS:
            yield receipt.job
    for heard in draft.facts.nodes.values():
        yield from (attempt_report.key[0] for attempt_report in heard.seen)
