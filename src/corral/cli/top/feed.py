"""Requests of the live view to the head, as infrequent as possible.

Each second the feed sends one small request: the number of the newest event. It
requests listings again only if that number has changed or new sensor values are due. No
listing may take more than a fiftieth of the time, regardless of the size of the
cluster.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from corral.boot.clock import SystemClock
from corral.cli.top.jobs import WHICH
from corral.cli.top.state import HeadLink, TopState
from corral.domain.errors import CorralError

if TYPE_CHECKING:
    from corral.wire import api, gpus

T = TypeVar("T")
BEAT_SECONDS: Final = 1.0
SENSED_SECONDS: Final = 10.0  # interval at which nodes report sensor values
SHARE: Final = 50  # after an answer that took T seconds, wait SHARE * T seconds
AWAY_SECONDS: Final = 5.0  # the longest between two tries while no head answers
PAGE: Final = 100
MOST_JOBS: Final = 1_000  # in one table; further ones are found by the filter


class FeedClient(Protocol):
    """Methods of `corral.AsyncClient` that the feed needs."""

    async def status(self) -> "api.Status": ...

    async def gpus(self) -> "gpus.GpusNow": ...

    async def newest_events(self, count: int = 1) -> "list[api.EventView]": ...

    async def jobs(
        self,
        *,
        everything: bool = False,
        limit: int = 100,
        before: str | None = None,
        states: Sequence[str] = (),
        text: str = "",
    ) -> "list[api.JobView]": ...


@dataclass(slots=True)
class PollPace:
    """Schedule of one kind of request: when it is due, in seconds of a monotonic clock.
    `number`: number of the newest event at the last request."""

    least: float = BEAT_SECONDS
    most: float = SENSED_SECONDS
    asked_at: float = float("-inf")
    took: float = 0.0
    number: int = -1  # of the newest event when it was asked

    def is_due(self, now: float, number: int) -> bool:
        elapsed_seconds = now - self.asked_at
        if elapsed_seconds < SHARE * self.took:
            return False
        return elapsed_seconds >= self.most or (
            number != self.number and elapsed_seconds >= self.least
        )

    def asked(self, at: float, took: float, number: int) -> None:
        self.asked_at, self.took, self.number = at, took, number


@dataclass(frozen=True, slots=True)
class JobsQuery:
    """Selection of listed jobs: `which` is a name of WHICH, `text` a part of the job
    name, `count` the highest number of jobs."""

    which: str = "unfinished"
    text: str = ""
    count: int = PAGE


@dataclass(slots=True)
class Feed:
    """Source of the live view's data: it keeps `known` close to the state of the
    cluster. `step` is one round of requests; `run` repeats it forever."""

    source: FeedClient
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = field(default_factory=lambda: SystemClock().wall)
    known: TopState = TopState()
    wanted: JobsQuery = JobsQuery()
    failures: int = 0
    _paces: dict[str, PollPace] = field(
        default_factory=lambda: {
            name: PollPace() for name in ("status", "gpus", "jobs")
        }
    )
    _listed: JobsQuery | None = None  # the jobs that are known
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def want(self, wanted: JobsQuery) -> None:
        """Select which jobs are listed from now on, and request them at once."""
        self.wanted = wanted
        self._woken.set()

    def hurry(self) -> None:
        """Make all requests due at once, because the user has changed something."""
        for pace in self._paces.values():
            pace.asked_at, pace.took = float("-inf"), 0.0
        self._woken.set()

    async def run(self, changed: Callable[[], None]) -> None:
        """Send requests forever, and call `changed` after each round."""
        while True:
            self._woken.clear()
            await self.step()
            changed()
            try:
                async with asyncio.timeout(self.nap):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Send one round of requests; unlike `step`, raise its errors.

        Raises: Unreachable, and every refusal of the head.
        """
        await self._refresh_state(0)

    @property
    def nap(self) -> float:
        """Return the seconds until the next round; more after failures."""
        return min(AWAY_SECONDS, BEAT_SECONDS * 2.0 ** min(self.failures, 10))

    async def step(self) -> None:
        """Send the requests that are due. If the head does not answer, the known state
        is kept."""
        try:
            latest_events = await self.source.newest_events(1)
            number = latest_events[-1].number if latest_events else 0
            await self._refresh_state(number)
        except CorralError as error:
            link = self.known.link
            silent_since = link.since if not link.live else self.wall()
            self.failures += 1
            failed_link = HeadLink(
                live=False, since=silent_since, why=error.message, hint=error.hint
            )
            self.known = replace(self.known, link=failed_link)
            return
        if not self.known.link.live:
            self.hurry()  # it may be another head, which knows other things
            self.known = replace(self.known, link=HeadLink())
        self.failures = 0

    async def _refresh_state(self, number: int) -> None:
        if (
            status := await self._if_due("status", number, self.source.status)
        ) is not None:
            self.known = replace(self.known, status=status, at=self.wall())
        if (gpus := await self._if_due("gpus", number, self.source.gpus)) is not None:
            self.known = replace(self.known, gpus=gpus, at=self.wall())
        if self.wanted != self._listed:
            self._paces["jobs"] = PollPace()
        jobs_query = self.wanted
        job_views = await self._if_due("jobs", number, lambda: self._jobs(jobs_query))
        if job_views is not None:
            self._listed = jobs_query
            has_more = len(job_views) > jobs_query.count
            jobs = job_views[: jobs_query.count]
            self.known = replace(self.known, jobs=jobs, more=has_more, at=self.wall())

    async def _if_due(
        self, name: str, number: int, ask: Callable[[], Awaitable[T]]
    ) -> T | None:
        pace, now = self._paces[name], self.clock()
        if not pace.is_due(now, number):
            return None
        answer = await ask()
        pace.asked(now, self.clock() - now, number)
        return answer

    async def _jobs(self, wanted: JobsQuery) -> "list[api.JobView]":
        """Request the wanted jobs. One job more than wanted is requested; if it
        arrives, the listing is not complete."""
        job_views: list[api.JobView] = []
        for chain in WHICH[wanted.which]:
            rows_left = wanted.count + 1 - len(job_views)
            if rows_left <= 0:
                break
            job_views += await self.source.jobs(
                everything=chain.everything,
                limit=rows_left,
                states=chain.states,
                text=wanted.text,
            )
        return job_views
