"""Future events of a replay: ends of jobs, submissions, and waits that exceed a limit."""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Final

from corral.domain.ids import JobId
from corral.domain.queue_tree import QueueTree
from corral.replay.idle_wakeups import wait_ends
from corral.replay.simulated_job import SimulatedJob
from corral.replay.snapshot import Coming
from corral.schedule import Groups, Waiting

TOGETHER_SECONDS: Final = 1e-6  # events so near to one another are one
End = tuple[float, tuple[int, int], JobId, int]
WaitEnd = tuple[float, JobId, float]


class Agenda:
    """Planned future events; times are wall clock. If a job stops or starts in the
    meantime, the events planned for it are no longer valid and are skipped. The Agenda
    checks this in `running` and `waiting`, which belong to the replay and are only read
    here.

    `coming` holds the gangs that will be submitted, the soonest first.
    """

    def __init__(
        self,
        running: Mapping[JobId, SimulatedJob],
        waiting: Groups,
        coming: Sequence[Coming],
    ) -> None:
        self._running, self._waiting = running, waiting
        self._ends: list[End] = []
        self._wait_ends: list[WaitEnd] = []
        self._coming, self._came = coming, 0

    def plan_end(self, job: SimulatedJob, at: float) -> None:
        """Plan the time `at` when the job's seats become free. The event is skipped if
        the job has been stopped or restarted by then."""
        heappush(self._ends, (at, job.gang.order, job.gang.job, job.starts))

    def plan_wait_ends(self, tree: QueueTree, gang: Waiting, now: float) -> None:
        """Plan the moments at which the gang, which waits from now on, has waited long
        enough that nodes may be reserved for it."""
        for wait_end in wait_ends(tree, gang):
            if wait_end > now:
                heappush(self._wait_ends, (wait_end, gang.job, gang.since))

    @property
    def due_at(self) -> float:
        """Return the time of the next valid event of any kind; inf if no event is left."""
        while self._ends and not self._is_due(self._ends[0]):
            heappop(self._ends)
        while self._wait_ends and not self._still_waits(self._wait_ends[0]):
            heappop(self._wait_ends)
        soonest = self._ends[0][0] if self._ends else inf
        soonest = min(soonest, self._wait_ends[0][0] if self._wait_ends else inf)
        if self._came < len(self._coming):
            soonest = min(soonest, self._coming[self._came].at)
        return soonest

    def ended(self, now: float) -> Iterator[JobId]:
        """Yield the jobs whose seats become free by `now`. The caller must release each
        job before it asks for the next one."""
        while self._ends and self._ends[0][0] <= now + TOGETHER_SECONDS:
            job_end = heappop(self._ends)
            if self._is_due(job_end):
                yield job_end[2]

    def submitted(self, now: float) -> Iterator[Coming]:
        """Yield the jobs that have been submitted since the last call."""
        while self._came < len(self._coming) and self._coming[self._came].at <= now:
            self._came += 1
            yield self._coming[self._came - 1]

    def has_wait_ended(self, now: float) -> bool:
        """Return whether a job that still waits has reached a planned wait end by
        `now`; it is removed."""
        has_left = False
        while self._wait_ends and self._wait_ends[0][0] <= now:
            has_left |= self._still_waits(heappop(self._wait_ends))
        return has_left

    def _is_due(self, end: End) -> bool:
        """Return whether the job still runs in the start for which this end was
        planned."""
        return end[2] in self._running and self._running[end[2]].starts == end[3]

    def _still_waits(self, wait_end: WaitEnd) -> bool:
        gang = self._waiting.get(wait_end[1])
        return gang is not None and gang.since == wait_end[2]
