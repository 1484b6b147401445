"""Watch of the steps of all attempts on a node. When the ranks of one make no steps, it
looks at them, keeps the evidence and reports it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from corral.agent.clocks import wall
from corral.agent.watching.rank_looks import LookRound, Sleeps, look_round
from corral.agent.watching.rank_reports import RankReport
from corral.agent.watching.rank_samples import (
    LOOK_SECONDS,
    RankSample,
    Reports,
    take_samples,
)
from corral.agent.watching.stall_evidence import save_evidence
from corral.domain.desired_state import Launch
from corral.domain.hang import NodeHang, StallPhase
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.health.progress_bounds import LEAST_BOUNDS, LeastBounds, StepBounds

TICK_SECONDS: Final = 0.25
# A tick that is later than this shows that the agent itself was not scheduled.
LATE_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 5.0  # between two rounds of looks, and more while a stall lasts
AGAIN_SHARE: Final = 0.25  # of the time without a step
log = logging.getLogger(__name__)

TakeSamples = Callable[[Path, Reports], Awaitable[list[RankSample]]]


class RankReports(Protocol):
    """Interface of what the ranks of attempts have reported about themselves."""

    def rank_reports(self, key: AttemptKey) -> Mapping[int, RankReport]:
        """Return the newest report of each rank, by its number."""

    def declared_phases(self, key: AttemptKey) -> frozenset[StallPhase]:
        """Return the phases in which ranks say that they are."""


@dataclass(slots=True, kw_only=True)
class _WatchedAttempt:
    """An attempt whose steps are watched. `round_at`: when the next round of looks
    begins, if no rank makes a step before."""

    key: AttemptKey
    times: StepBounds
    seen: Seen
    hang: NodeHang | None = None
    stalls: int = 0
    declared: StallPhase = StallPhase.COMPUTE
    phase: StallPhase = StallPhase.COMPUTE  # of this stall
    moved_at: float | None = None  # when a rank worked without a step
    round_at: float = 0.0
    sleeps: Sleeps = field(default_factory=Sleeps)
    looking: asyncio.Task[None] | None = None

    def end_stall(self) -> None:
        self.hang = None
        self.phase = StallPhase.COMPUTE
        self.moved_at = None
        self.round_at = 0.0
        self.sleeps.clear()
        self.stop_looking()

    def stop_looking(self) -> None:
        if self.looking is not None:
            self.looking.cancel()
            self.looking = None


class HangWatch:
    """Watch of the attempts on a node that are up and whose hangs are looked for.

    Args:
        attempts: Folder of the attempts.
        ranks: What ranks have reported themselves.
        on_change: Called when a report of a stall is new.
        clock: Seconds of a clock that cannot be set.
        least: Least bounds, of whatever is learned.
    """

    def __init__(
        self,
        attempts: Path,
        ranks: RankReports,
        on_change: Callable[[], None],
        clock: Callable[[], float],
        least: LeastBounds = LEAST_BOUNDS,
        samples: TakeSamples = take_samples,
    ) -> None:
        self._attempts = attempts
        self._ranks = ranks
        self._on_change = on_change
        self._clock = clock
        self._least = least
        self._take_samples = samples
        self._watched: dict[AttemptKey, _WatchedAttempt] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._ticked_at = 0.0

    def follow(
        self, launches: Mapping[AttemptKey, Launch], seens: Iterable[Seen]
    ) -> None:
        """Watch the attempts that are up, and end this for those that are not."""
        up = {
            seen.key: seen
            for seen in seens
            if seen.phase is Phase.UP and _is_watched(launches.get(seen.key))
        }
        for key in self._watched.keys() - up.keys():
            self._watched.pop(key).stop_looking()
        for key, seen in up.items():
            if key not in self._watched:
                rule = launches[key].hang
                self._watched[key] = _WatchedAttempt(
                    key=key,
                    times=StepBounds(
                        began_at=self._clock(),
                        user_bound_seconds=None if rule is None else rule.bound_seconds,
                        least=self._least,
                    ),
                    seen=seen,
                )
            self._watched[key].seen = seen
        if self._watched and self._ticking is None:
            self._ticked_at = self._clock()
            self._ticking = asyncio.create_task(self._keep_ticking())

    def reported(self, seens: Iterable[Seen]) -> tuple[Seen, ...]:
        """Return the attempts, those that make no steps with what was observed."""
        return tuple(
            replace(seen, hang=self._watched[seen.key].hang)
            if seen.key in self._watched
            else seen
            for seen in seens
        )

    async def close(self) -> None:
        """End all of it."""
        tasks = [watched.looking for watched in self._watched.values()]
        for task in (*tasks, self._ticking):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _keep_ticking(self) -> None:
        """Check all attempts again and again, while there are any."""
        while self._watched:
            await asyncio.sleep(TICK_SECONDS)
            self.tick()
        self._ticking = None

    def tick(self) -> None:
        """Check all attempts once. Time in which the agent was not scheduled does not
        count, because its ranks may not have been scheduled either."""
        now = self._clock()
        late_seconds = now - self._ticked_at - TICK_SECONDS
        self._ticked_at = now
        for watched in self._watched.values():
            if late_seconds > LATE_SECONDS:
                watched.times.excuse(late_seconds)
                watched.stop_looking()
            self._check(watched, now)

    def _check(self, watched: _WatchedAttempt, now: float) -> None:
        declared = self._declared_phase(watched)
        phase = watched.declared if watched.hang is None else watched.phase
        if watched.times.observe(_steps_of(watched.seen), now, phase):
            had_report = watched.hang is not None
            watched.declared = declared
            watched.end_stall()
            if had_report:
                log.info("attempt %s.%s makes steps again", *watched.key)
                self._on_change()
            return
        if declared is not watched.declared:
            self._change_phase(watched, declared, now)
        stalled_seconds = watched.times.stalled_seconds(now)
        # also in a phase that may last longer, because other nodes wait for it
        due_seconds = watched.times.look_seconds
        if (
            due_seconds is None
            or watched.looking is not None
            or watched.seen.waits_for_input is not None
            or now < watched.round_at
            or stalled_seconds < due_seconds - LOOK_SECONDS
        ):
            return
        watched.looking = asyncio.create_task(self._look(watched))

    def _declared_phase(self, watched: _WatchedAttempt) -> StallPhase:
        """Return the phase in which ranks say that they are. After its last step, a
        program saves."""
        progress = watched.seen.progress
        if progress is not None and progress.is_complete:
            return StallPhase.SAVE
        return _declared(self._ranks.declared_phases(watched.key))

    def _change_phase(
        self, watched: _WatchedAttempt, declared: StallPhase, now: float
    ) -> None:
        """Begin or end a phase that the program has declared; both are progress."""
        watched.times.end_phase(watched.declared, now)
        watched.declared = declared
        had_report = watched.hang is not None
        watched.end_stall()
        if had_report:
            self._on_change()

    async def _look(self, watched: _WatchedAttempt) -> None:
        """Look at the ranks, keep the evidence, and report both."""
        folder = self._attempts / f"{watched.key[0]}.{watched.key[1]}"
        reports = self._ranks.rank_reports(watched.key)
        try:
            samples = await self._take_samples(folder, reports)
            observed = look_round(
                samples,
                reports=reports,
                sleeps=watched.sleeps,
                steps=_steps_by_rank(watched.seen),
                ended_ranks=[rank for rank, _ in watched.seen.exits],
            )
            hang = self._report(watched, observed)
            if watched.hang is None:
                watched.stalls += 1
                log.info(
                    "attempt %s.%s has made no step for %.0f s",
                    *watched.key,
                    hang.stalled_seconds,
                )
            await asyncio.to_thread(
                save_evidence,
                folder,
                stall=watched.stalls,
                hang=hang,
                samples=samples,
                reports=dict(reports),
                at=wall(),
            )
            watched.hang = hang
            self._on_change()
        except OSError as error:
            log.warning("attempt %s.%s cannot be observed: %s", *watched.key, error)
        watched.looking = None

    def _report(self, watched: _WatchedAttempt, observed: LookRound) -> NodeHang:
        """Return the report of a round of looks, and plan the next round."""
        now = self._clock()
        stalled_seconds = watched.times.stalled_seconds(now)
        phase = watched.declared
        if phase is StallPhase.COMPUTE:
            phase = _longer(watched.phase, observed.phase)
        if not watched.times.has_stepped:
            phase = StallPhase.FIRST_STEP
        watched.phase = phase
        if observed.has_moved:
            watched.moved_at = stalled_seconds
        least_seconds = self._least.step_seconds
        bound_seconds = watched.times.bound_seconds(phase) or least_seconds
        is_user_bound = watched.times.user_bound_seconds is not None
        if watched.moved_at is not None and not is_user_bound:
            # after it has worked, a rank has time again
            bound_seconds = max(bound_seconds, watched.moved_at + least_seconds)
        again_seconds = max(AGAIN_SECONDS, AGAIN_SHARE * stalled_seconds)
        if stalled_seconds < bound_seconds:
            until_bound = bound_seconds - stalled_seconds - LOOK_SECONDS
            again_seconds = min(again_seconds, max(TICK_SECONDS, until_bound))
        watched.round_at = now + again_seconds
        return NodeHang(
            rank_looks=observed.looks,
            stalled_seconds=stalled_seconds,
            bound_seconds=bound_seconds,
            phase=phase,
            is_user_bound=is_user_bound,
            cannot_read=observed.cannot_read,
        )


def _is_watched(launch: Launch | None) -> bool:
    return (
        launch is not None
        and launch.hang is not None
        and launch.hang.is_on
        and launch.replica is None
    )


def _steps_of(seen: Seen) -> tuple[int, ...]:
    if seen.progress is None:
        return ()
    return tuple(pace.step for pace in seen.progress.ranks) or (seen.progress.step,)


def _steps_by_rank(seen: Seen) -> dict[int, int]:
    paces = () if seen.progress is None else seen.progress.ranks
    return {pace.rank: pace.step for pace in paces}


def _declared(phases: frozenset[StallPhase]) -> StallPhase:
    """Return the longest of the phases in which ranks are."""
    longest = StallPhase.COMPUTE
    for phase in phases:
        longest = _longer(longest, phase)
    return longest


def _longer(one_phase: StallPhase, other_phase: StallPhase) -> StallPhase:
    """Return the phase that may last longer."""
    order = (StallPhase.SAVE, StallPhase.EVALUATE, StallPhase.DATA)
    return next(
        (phase for phase in order if phase in (one_phase, other_phase)),
        StallPhase.COMPUTE,
    )
