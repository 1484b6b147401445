"""Predicted starts of waiting jobs, computed in a process separate from the event loop.

The predictor learns from ended jobs and from the record of past forecasts. It updates
both from the events that the loop publishes, so a tick has no additional cost.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from collections.abc import Sequence as Seq
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from corral.control.control import Control
from corral.control.suggestions import changes_of
from corral.domain.errors import Trouble
from corral.domain.event_kind import EventKind
from corral.domain.ids import JobId, UserName
from corral.domain.ids import Sequence as RequestNumber
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.observed_state import Facts
from corral.domain.reason_code import NOT_PREDICTED
from corral.domain.requests import StoredRequest, Submit
from corral.domain.run_history import (
    ExpectedEnd,
    Question,
    Ran,
    StartForecast,
    StartForecastTold,
    ran_of,
)
from corral.domain.spec_content import without_commands
from corral.domain.world import Event, World
from corral.ports.forecaster import Foreteller
from corral.ports.log import HeadLogger
from corral.reconcile.apply_requests import grant_new
from corral.reconcile.changeset import Draft
from corral.reconcile.expected_end import ending_of

RUNS: Final = 5_000  # ended jobs that are learned from
OUTCOMES: Final = 1_000  # rows of the record
MOST_JOBS: Final = 5_000  # unfinished ones, beyond which there are no forecasts
ROUND_SECONDS: Final = 0.5  # interval of learning from new events
MOST_A_ROUND: Final = 20  # ended jobs that are looked up
REST: Final = 9.0  # after an unrequested forecast, pause for N times its duration
FRESH_SECONDS: Final = 2.0
MOST_OF_ONE_USER: Final = 2  # forecasts in line at once; a user's others wait for these
log = HeadLogger("corral.control")


@dataclass(slots=True)
class _Line:
    """The forecast requests of one user, few of which are computed at the same time.
    `here` is the number of requests that wait or are being computed."""

    turns: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MOST_OF_ONE_USER)
    )
    here: int = 0


class Forecasts:
    """Predicts for one head when jobs will start, to answer users and to record how
    good the predictions are. `run` keeps the data up to date; without it, nothing is
    learned."""

    def __init__(self, control: Control, foreteller: Foreteller) -> None:
        self._control = control
        self._foreteller = foreteller
        self._runs: deque[Ran] = deque(maxlen=RUNS)
        self._outcomes: deque[StartForecastTold] = deque(maxlen=OUTCOMES)
        self._open: dict[JobId, StartForecastTold] = {}
        self._fresh: dict[JobId, tuple[float, StartForecast]] = {}
        self._untold: deque[JobId] = deque(maxlen=MOST_A_ROUND)
        self._rests_until = 0.0
        self._behind = True
        self._lines: dict[UserName, _Line] = {}

    # -- what is asked ---------------------------------------------------------------------------

    async def of(self, job: Job, by: UserName) -> StartForecast | None:
        """Return when a waiting job is expected to start, and which changes would let
        it start sooner; None if the start cannot be predicted. `by` is the user who
        asks.

        A forecast that is a few seconds old is returned again.
        """
        async with self._user_turn(by):
            return await self._of(job)

    async def _of(self, job: Job) -> StartForecast | None:
        if (
            job.state != JobState.QUEUED
            or self._control.reason(job).code in NOT_PREDICTED
        ):
            return None
        now = self._control.clock.monotonic()
        computed_at, start_forecast = self._fresh.get(job.id, (float("-inf"), None))
        if start_forecast is not None and now - computed_at < FRESH_SECONDS:
            return start_forecast
        changes = changes_of(self._control.world, without_commands(job.spec), job.owner)
        forecast = await self._run_forecast(
            _snapshot_world(self._control.world), job.id, changes
        )
        if len(self._fresh) >= MOST_JOBS:
            self._fresh.clear()
        if forecast is not None:
            self._fresh[job.id] = (now, forecast)
        return forecast

    def ending_of(self, job: Job) -> ExpectedEnd | None:
        """Return when a running job will end; None for a job that does not run."""
        attempt = self._control.world.attempts.get(job.id)
        now, progress = self._control.now().wall, self._control.progress(job)
        return ending_of(job, attempt, self._runs, now, progress)

    async def planned(
        self, specs: Seq[JobSpec], places: Seq[int], by: UserName
    ) -> dict[int, StartForecast]:
        """Return the forecast of one new job, as if the specs were submitted now: the
        first of those at the indices `places` that would be queued. The key is its
        index. The dict is empty if none would be queued or its start cannot be
        predicted."""
        async with self._user_turn(by):
            return await self._forecast_new_jobs(specs, places, by)

    @asynccontextmanager
    async def _user_turn(self, user: UserName) -> AsyncIterator[None]:
        """Wait until fewer than MOST_OF_ONE_USER forecasts of the user are in line."""
        line = self._lines.setdefault(user, _Line())
        line.here += 1
        try:
            async with line.turns:
                yield
        finally:
            line.here -= 1
            if not line.here:
                del self._lines[user]

    async def _forecast_new_jobs(
        self, specs: Seq[JobSpec], places: Seq[int], by: UserName
    ) -> dict[int, StartForecast]:
        world = _snapshot_world(self._control.world)
        now = self._control.now()
        sequence = RequestNumber(world.granted + 1)
        request = StoredRequest(
            sequence=sequence,
            by=by,
            at=now.wall,
            asked=Submit(specs=tuple(specs), key=""),
        )
        draft = Draft(world, self._control.facts, now)
        new_jobs = grant_new(draft, request)
        new_jobs = [replace(job, spec=without_commands(job.spec)) for job in new_jobs]
        world.jobs |= {job.id: job for job in new_jobs if not job.is_final}
        queued_index = next(
            (
                queued_place
                for queued_place in places
                if new_jobs[queued_place].state == JobState.QUEUED
            ),
            None,
        )
        if queued_index is None:
            return {}
        changes = changes_of(world, new_jobs[queued_index].spec, by)
        start_forecast = await self._run_forecast(
            world, new_jobs[queued_index].id, changes
        )
        return {} if start_forecast is None else {queued_index: start_forecast}

    async def _run_forecast(
        self, world: World, job: JobId, changes: tuple[tuple[str, JobSpec], ...]
    ) -> StartForecast | None:
        if len(world.jobs) > MOST_JOBS or job not in world.jobs:
            return None
        facts, now = self._control.facts, self._control.now()
        if facts.placing is not None:  # who starts when is the engine's to say
            return None
        question = Question(
            world=world,
            facts=Facts(nodes=dict(facts.nodes), awaited=set(facts.awaited)),
            wall=now.wall,
            serving=now.serving,
            runs=tuple(self._runs),
            told=tuple(self._outcomes),
            job=job,
            instead=changes,
        )
        try:
            return await self._foreteller.forecast(question)
        except Trouble as error:
            log.warning("no_forecast", job=job, error=error.message)
            return None

    # -- what is learned -------------------------------------------------------------------------

    async def run(self) -> None:
        """Learn from events forever, and record a forecast for each job that has to
        wait."""
        async with self._control.hub.follow(None) as news:
            while True:
                try:
                    if self._behind:
                        self._behind = False
                        await self._load_history()
                    self._behind |= await self._round(_drain_events(news))
                except Trouble as error:
                    log.warning("forecasts_behind", error=error.message)
                    self._behind = True
                except Exception:  # a fault of ours must not end the head
                    log.exception("forecasts_failed")
                    self._behind = True
                await asyncio.sleep(ROUND_SECONDS)

    def learn_anew(self) -> None:
        """Request that the next round loads all learned data from the store again,
        because jobs were imported."""
        self._behind = True

    async def _load_history(self) -> None:
        """Load the runs and forecasts from the store, so that a new head continues with
        the record of the old one."""
        store = self._control.store
        runs = await store.runs(limit=RUNS)
        self._runs = deque(reversed(runs), maxlen=RUNS)
        rows = await store.told(limit=OUTCOMES)
        settled_rows = [row for row in rows if row.waited_seconds is not None]
        self._outcomes = deque(sorted(settled_rows, key=_settled_at), maxlen=OUTCOMES)
        self._open = {row.job: row for row in rows if row.waited_seconds is None}
        await self._record_outcomes(list(self._open))

    async def _round(self, events: list[Event] | None) -> bool:
        """Process new events; None means that some were missed.

        Return whether everything must be loaded again because events were missed.
        """
        if events is None:
            return True
        jobs = self._control.world.jobs
        event_job_ids = dict.fromkeys(
            event.job for event in events if event.job is not None
        )
        ended_ids = [id for id in event_job_ids if id not in jobs]
        await self._record_outcomes([id for id in event_job_ids if id in self._open])
        await self._learn_run_times(ended_ids[:MOST_A_ROUND])
        self._untold.extend(
            event.job
            for event in events
            if event.kind == EventKind.SUBMITTED and event.job is not None
        )
        await self._tell_next()
        return False

    async def _record_outcomes(self, ids: Iterable[JobId]) -> None:
        """Record for each of these jobs whether its forecast came true: when the job
        first started, or that it no longer waits for another reason, for example a
        user's request."""
        rows, void = [], []
        for id in ids:
            attempts = await self._control.store.attempts(id)
            if attempts:
                start_forecast_told = self._open[id]
                waited = max(0.0, attempts[0].placed_at - start_forecast_told.at)
                rows.append(replace(start_forecast_told, waited_seconds=waited))
            elif not self._still_waits(id):
                void.append(id)
        if rows or void:
            await self._control.store.tell(rows, void=void)
        self._outcomes.extend(rows)
        for id in [row.job for row in rows] + void:
            del self._open[id]

    async def _learn_run_times(self, ids: Iterable[JobId]) -> None:
        for id in ids:
            job = await self._control.store.job(id)
            ran = (
                ran_of(job, await self._control.store.attempts(id))
                if job is not None
                else None
            )
            if ran is not None:
                self._runs.append(ran)

    async def _tell_next(self) -> None:
        """Compute and store the forecast of the next new job that still waits. After a
        forecast, the method does nothing for a time in proportion to the time that the
        forecast took."""
        began = self._control.clock.monotonic()
        while self._untold and began >= self._rests_until:
            id = self._untold.popleft()
            job = self._control.world.jobs.get(id)
            if (
                job is None
                or job.state != JobState.QUEUED
                or job.attempt
                or id in self._open
                or self._control.reason(job).code in NOT_PREDICTED
            ):
                continue
            start_forecast = await self._run_forecast(
                _snapshot_world(self._control.world), id, ()
            )
            if (
                start_forecast is not None
                and start_forecast.is_bounded
                and self._still_waits(id)
            ):
                await self._control.store.tell([start_forecast.row])
                self._open[id] = start_forecast.row
            ended_at = self._control.clock.monotonic()
            self._rests_until = ended_at + REST * (ended_at - began)

    def _still_waits(self, id: JobId) -> bool:
        job = self._control.world.jobs.get(id)
        return job is not None and job.state == JobState.QUEUED


def _settled_at(row: StartForecastTold) -> float:
    return row.at + (row.waited_seconds or 0.0)


def _drain_events(news: "asyncio.Queue[Event | None]") -> list[Event] | None:
    """Return all events that are in the queue now; None if the reader has missed some."""
    events = [news.get_nowait() for _ in range(news.qsize())]
    known_events = [event for event in events if event is not None]
    return known_events if len(known_events) == len(events) else None


def _snapshot_world(world: World) -> World:
    """Return a copy of the current world without ended jobs. Rows never change, but the
    dictionaries that hold them do, and are copied. Large commands are left out, because
    the other process would hold a copy for each job."""
    large = (job for job in world.jobs.values() if job.spec.content_number is not None)
    light = {job.id: replace(job, spec=without_commands(job.spec)) for job in large}
    return replace(
        world,
        jobs={**world.jobs, **light},
        ended={},
        ended_at={},
        attempts=dict(world.attempts),
        allocations=dict(world.allocations),
        saves=dict(world.saves),
        nodes=dict(world.nodes),
        uses=dict(world.uses),
        spent=dict(world.spent),
        reservations=dict(world.reservations),
    )
