"""The durable store that all heads of a simulated world share, with faults of a disk
and of crashes."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from enum import StrEnum

from corral.domain.errors import StoreTrouble
from corral.domain.ids import JobId, UserName
from corral.domain.job import Job
from corral.domain.requests import Asked, StoredRequest
from corral.domain.users import THE_HEAD, Speaker
from corral.domain.world import Changes, Event, World
from corral.simulate.world import Stage
from corral.store.memory_store import MemoryStore


class Point(StrEnum):
    """A moment in the work of a head at which the simulation may kill the head."""

    BEFORE_REQUEST = "before a request is written"
    AFTER_REQUEST = "after a request is written, before it is acknowledged"
    BEFORE_COMMIT = "before a commit"
    AFTER_COMMIT = "after a commit, before its answer"
    LOADING = "while it loads its world"


class SimulatedStore(MemoryStore):
    """Store in memory with injected faults. The data that it has written survives every
    head.

    `committed` is called at each commit with the term of the head, the changes, and the
    time of the decision. `crash` ends the head that makes the call.
    """

    def __init__(
        self,
        stage: Stage,
        *,
        committed: Callable[[int, Changes, float], None],
        crash: Callable[[], None],
    ) -> None:
        super().__init__()
        self._stage = stage
        self._committed = committed
        self._end_head = crash
        self.crash_at: Point | None = None
        self.failing_commits = 0
        # commits that are written and answered with an error
        self.written_but_failing = 0
        self.full_until = 0.0
        self.slow_seconds = 0.0

    async def lead(self, *, known: int | None = None) -> World:
        self._check_disk()
        await self._crash_if_due(Point.LOADING)
        return await super().lead(known=known)

    async def add_request(
        self, asked: Asked, *, by: UserName, at: float, speaker: Speaker = THE_HEAD
    ) -> StoredRequest:
        await self._take_time()
        self._check_disk()
        await self._crash_if_due(Point.BEFORE_REQUEST)
        request = await super().add_request(asked, by=by, at=at, speaker=speaker)
        await self._crash_if_due(Point.AFTER_REQUEST)
        await self._take_time()
        return request

    async def commit(self, term: int, changes: Changes) -> Seq[Event]:
        decided_at = self._stage.now()
        await self._take_time()
        self._check_disk()
        if self.failing_commits > 0:
            self.failing_commits -= 1
            raise StoreTrouble("the commit failed")
        await self._crash_if_due(Point.BEFORE_COMMIT)
        events = await super().commit(term, changes)
        self._committed(term, changes, decided_at)
        await self._crash_if_due(Point.AFTER_COMMIT)
        await self._take_time()
        if self.written_but_failing > 0:
            self.written_but_failing -= 1
            raise StoreTrouble("the disk did not answer in time")
        return events

    def durable_jobs(self) -> Mapping[JobId, Job]:
        """Return the jobs as they are on disk, whatever any head believes."""
        return self._jobs

    async def _take_time(self) -> None:
        if self.slow_seconds:
            await self._stage.nap(self._stage.chance.uniform(0.0, self.slow_seconds))

    def _check_disk(self) -> None:
        if self._stage.now() < self.full_until:
            raise StoreTrouble("the disk is full")

    async def _crash_if_due(self, point: Point) -> None:
        """End the calling head if a crash is planned at this point. That head then runs
        no further instruction."""
        if self.crash_at == point:
            self.crash_at = None
            self._stage.tell(f"the head dies {point}")
            self._end_head()
            await self._stage.loop.create_future()
