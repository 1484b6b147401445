"""Checks of retention. The auditor applies its own copy of the rule to each commit that
deletes ended jobs."""

from corral.domain.attempt import SeatState
from corral.domain.ids import JobId
from corral.domain.world import Changes
from corral.simulate.recorded_state import Books
from corral.simulate.world import ALWAYS_SECONDS


class Forgetting:
    """Checks of the deletion of ended jobs: whether each deleted job was allowed to be
    deleted, and that it does not return."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self.gone: set[JobId] = set()

    def check(self, changes: Changes) -> None:
        """Check a commit. Call this after the rows of the commit are in the recorded
        state."""
        for job in changes.jobs:
            if job.id in self.gone:
                self._report_breach(f"{job.id} was deleted, but exists again")
        awaited = {
            dependency.job
            for job in self._books.jobs.values()
            if not job.state.is_final
            for dependency in job.spec.after
        }
        self._were_too_many(changes)
        for id in changes.forgotten:
            self._was_needed_no_more(id, awaited)
            self.gone.add(id)

    def _were_too_many(self, changes: Changes) -> None:
        """Check that no more jobs are deleted than exceed the retention's number, if it
        has no age limit."""
        keep = self._books.stage.retention
        finished_count = sum(
            job.state.is_final for job in self._books.jobs.values()
        ) - len(self.gone)
        too_many = max(0, finished_count - keep.jobs)
        if keep.seconds >= ALWAYS_SECONDS and len(changes.forgotten) > too_many:
            self._report_breach(
                f"{changes.forgotten} jobs were deleted of {finished_count} ended ones"
            )

    def _was_needed_no_more(self, id: JobId, awaited: set[JobId]) -> None:
        job = self._books.jobs[id]
        if not job.state.is_final:
            self._report_breach(f"{id} was deleted while it is {job.state}")
        if id in awaited:
            self._report_breach(f"{id} was deleted, but an unfinished job waits for it")
        seats = [state for key, state in self._books.seats.items() if key[0] == id]
        if any(state != SeatState.RELEASED for state in seats):
            self._report_breach(f"{id} was deleted while it holds {seats}")
        if self._books.evidence.alive[id]:
            self._report_breach(f"{id} was deleted while its ranks run")

    def unfinished(self, ended: int) -> str:
        """Return an error text if more ended jobs remain than the retention allows; ""
        if not. `ended`: the number of ended jobs."""
        return (
            f"{ended} ended jobs are kept"
            if ended > self._books.stage.retention.jobs
            else ""
        )

    def _report_breach(self, text: str) -> None:
        self._books.breach("forget", text)
