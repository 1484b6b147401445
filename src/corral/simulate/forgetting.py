"""What may be forgotten: the auditor's own rule, held against each commit that forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.domain.attempt import SeatState
from corral.domain.ids import JobId
from corral.domain.moves import FINAL
from corral.domain.world import Changes

if TYPE_CHECKING:
    from corral.simulate.auditor import Auditor

ALWAYS_SECONDS = 1e9  # so long that no world lasts until a job is too old


class Forgetting:
    """Of jobs that are over: which are gone, and whether each might go."""

    def __init__(self, auditor: Auditor) -> None:
        self._auditor = auditor
        self.gone: set[JobId] = set()

    def check(self, changes: Changes) -> None:
        """Call it when the commit's own rows are in the auditor's books."""
        for job in changes.jobs:
            if job.id in self.gone:
                self._breach(f"{job.id} was forgotten and is there again")
        awaited = {
            after.job
            for job in self._auditor.jobs.values()
            if job.state not in FINAL
            for after in job.spec.after
        }
        self._were_too_many(changes)
        for id in changes.forgotten:
            self._was_needed_no_more(id, awaited)
            self.gone.add(id)

    def _were_too_many(self, changes: Changes) -> None:
        """Where nothing grows too old, no more may go than are too many."""
        keep = self._auditor.scene.retention
        over = sum(job.state in FINAL for job in self._auditor.jobs.values()) - len(self.gone)
        too_many = max(0, over - keep.jobs)
        if keep.seconds >= ALWAYS_SECONDS and len(changes.forgotten) > too_many:
            self._breach(f"{changes.forgotten} are forgotten of {over} jobs that are over")

    def _was_needed_no_more(self, id: JobId, awaited: set[JobId]) -> None:
        job = self._auditor.jobs[id]
        if job.state not in FINAL:
            self._breach(f"{id} is forgotten while it is {job.state}")
        if id in awaited:
            self._breach(f"{id} is forgotten, and an unfinished job waits for it")
        seats = [state for key, state in self._auditor.seats.items() if key[0] == id]
        if any(state != SeatState.RELEASED for state in seats):
            self._breach(f"{id} is forgotten while it holds {seats}")
        if self._auditor.scene.evidence.alive[id]:
            self._breach(f"{id} is forgotten while its ranks live")

    def unfinished(self) -> str:
        """What will still be forgotten, when all jobs are over; "" when nothing will."""
        durable, keep = self._auditor.scene.database.durable_jobs(), self._auditor.scene.retention
        return f"{len(durable)} ended jobs are kept" if len(durable) > keep.jobs else ""

    def _breach(self, text: str) -> None:
        self._auditor.breach("forget", text)
