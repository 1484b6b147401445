"""Requests to the head about the job whose page is open."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from corral.boot.clock import SystemClock
from corral.cli.curves.rows import POINTS, Grid, Picture, job_asks, job_picture
from corral.cli.top.feed import BEAT_SECONDS, SENSED_SECONDS, PollPace
from corral.cli.top.job_page import JobKnown
from corral.cli.top.state import HeadLink
from corral.domain.errors import CorralError, Refusal

if TYPE_CHECKING:
    from corral.wire import api
    from corral.wire.time_series import SeriesView

LOOK_SECONDS: Final = 2.0
LOG_LINES: Final = 60
LEAST_SECONDS: Final = 1.0
MOST_NODES: Final = 8  # whose curves are asked for: each is a question


class JobSource(Protocol):
    """Methods of `corral.AsyncClient` that the page of a job needs."""

    async def job(self, job: str) -> "api.JobDetail": ...

    async def why(self, job: str) -> "api.Why": ...

    def logs(
        self, job: str, *, rank: int | None = None, tail: int | None = None
    ) -> "AsyncIterator[api.LogLines]": ...

    async def series(
        self,
        key: str,
        *,
        since: float | None = None,
        until: float | None = None,
        fields: tuple[str, ...] = (),
        points: int = POINTS,
    ) -> "SeriesView": ...


@dataclass(slots=True)
class JobFeed:
    """Requests for one job's page: they keep `known` close to its state."""

    source: JobSource
    id: str
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = field(default_factory=lambda: SystemClock().wall)
    known: JobKnown = JobKnown()
    _about: PollPace = field(default_factory=lambda: PollPace(most=LOOK_SECONDS))
    _curves: PollPace = field(default_factory=lambda: PollPace(most=SENSED_SECONDS))

    async def run(self, changed: Callable[[], None]) -> None:
        while True:
            await self.step()
            changed()
            await asyncio.sleep(BEAT_SECONDS)

    async def step(self) -> None:
        try:
            await self._refresh_job()
        except CorralError as error:
            silent_since = (
                self.known.link.since if not self.known.link.live else self.wall()
            )
            failed_link = HeadLink(
                live=False, since=silent_since, why=error.message, hint=error.hint
            )
            self.known = replace(self.known, link=failed_link)
            return
        if not self.known.link.live:
            self.known = replace(self.known, link=HeadLink())

    async def _refresh_job(self) -> None:
        began = self.clock()
        if self._about.is_due(began, 0):
            job = await self.source.job(self.id)
            explanation = await self.source.why(self.id)
            self.known = replace(self.known, job=job, why=explanation)
            await self._read_log()
            self._about.asked(began, self.clock() - began, 0)
        began = self.clock()
        if self.known.job is not None and self._curves.is_due(began, 0):
            self.known = replace(
                self.known, picture=await self._fetch_curves(self.known.job)
            )
            self._curves.asked(began, self.clock() - began, 0)

    async def _read_log(self) -> None:
        text = ""
        try:
            async for piece in self.source.logs(self.id, rank=0, tail=LOG_LINES):
                text += piece.data
        except Refusal as error:  # another's: the rest may be seen
            self.known = replace(self.known, log=(), log_said=error.message)
            return
        self.known = replace(
            self.known, log=text.splitlines()[-LOG_LINES:], log_said=""
        )

    async def _fetch_curves(self, job: "api.JobDetail") -> Picture:
        end_time = job.ended_at if job.ended_at is not None else self.wall()
        first_time = job.attempts[0].placed_at if job.attempts else job.submitted_at
        grid = Grid.over(min(first_time, end_time - LEAST_SECONDS), end_time)
        series_queries = job_asks(job, grid.since, grid.until, nodes=MOST_NODES)
        answers = [
            await self.source.series(
                ask.key,
                since=ask.since,
                until=ask.until,
                fields=ask.fields,
                points=POINTS,
            )
            for ask in series_queries
        ]
        return job_picture(job, grid, answers, is_over=job.is_over, nodes=MOST_NODES)
