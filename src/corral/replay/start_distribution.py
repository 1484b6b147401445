"""Distribution of a gang's start, by many replays of the present state with the live
scheduling decision.

Unknown facts are drawn at random: how long each job runs, from similar jobs; and which
jobs will be submitted, from a past period whose submissions are repeated. The code is
plain Python, so that no head waits for a compiler.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from corral.domain.ids import JobId
from corral.domain.queue_policy import Policy
from corral.domain.run_history import Ran
from corral.replay.live_replay import Play
from corral.replay.rng import dice_named, roll
from corral.replay.runtime_history import Kind, RuntimeHistory
from corral.replay.snapshot import Coming, Happened, Present
from corral.replay.snapshot import JobClass as What
from corral.schedule.waiting import Waiting

# so far ahead it is looked; no start by then counts as this
HORIZON_SECONDS: Final = 10 * 86_400.0
PAST_SECONDS: Final = 14 * 86_400.0  # so far back a stretch of submissions may begin
MOST_COMING: Final = 200  # of one run
STEPS_QUICKER: Final = 0.05  # of what is left by the rate of steps, at most
# from the quickest to the slowest: saves, and the end of the program
STEPS_SPREAD: Final = 0.2
PASSES_AT_ONCE: Final = 32  # between two looks at how long it took


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeKnowledge:
    """What is known about a job's run time: the kind of job, the seconds that it has
    run, and its limit in seconds. `left_seconds` is the time until its last step, from
    its rate of steps."""

    kind: Kind
    ran_seconds: float = 0.0
    limit_seconds: float | None = None
    left_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The result of one replay: the seconds from now to the job's start, and from start
    to end. `is_cut` means that the replay was ended early, so the start comes later
    than given. `stopped` holds the jobs that were stopped to make room for it."""

    wait_seconds: float
    run_seconds: float
    is_cut: bool = False
    stopped: tuple[JobId, ...] = ()


def outlook(
    present: Present,
    lives: Mapping[JobId, RunTimeKnowledge],
    kin: RuntimeHistory,
    past: Sequence[Ran],
    job: JobId,
    *,
    runs: int,
    since: float,
    most_passes: int,
    keep_on: Callable[[int], bool],
) -> list[Drawn]:
    """Return one outcome for the waiting job from each replay. `keep_on` gets the
    number of finished replays and returns whether there is time for more; one replay is
    always begun.

    In each replay, every job has its own random numbers, derived from its id. The same
    world therefore always gives the same result. A job that comes or goes does not
    change the random numbers of the others.

    Args:
        lives: What is known about the run time of every gang of the present.
        kin: Run times of ended jobs, from which those of similar jobs are drawn.
        past: Ended jobs in the order in which they were submitted.
        since: The last change (wall clock); a past period is repeated from then on.
        most_passes: Limit of scheduling passes in one replay.
    """
    luck = _Luck(job)
    submits = [ran.submitted_at for ran in past]
    drawns: list[Drawn] = []
    while len(drawns) < runs and (not drawns or keep_on(len(drawns))):
        total_seconds = _run_times(lives, kin, luck)
        left_seconds = {
            id: seconds - lives[id].ran_seconds for id, seconds in total_seconds.items()
        }
        coming = _draw_arrivals(present, past, submits, kin, luck, since)
        happened: list[Happened] = []
        play = Play(present, left_seconds, coming, hear=happened.append)
        started_at = _simulate_start(
            play, job, present.now + HORIZON_SECONDS, most_passes, len(drawns), keep_on
        )
        if started_at is None and drawns and not keep_on(len(drawns)):
            break  # a cut shows the time it took, nothing of the job
        wait = max(0.0, (play.now if started_at is None else started_at) - present.now)
        stopped = [
            event.job
            for event in happened
            if event.kind == What.PREEMPTED and event.by == job
        ]
        drawns.append(
            Drawn(
                wait_seconds=wait,
                run_seconds=left_seconds[job],
                is_cut=started_at is None,
                stopped=tuple(stopped),
            )
        )
    return drawns


class _Luck:
    """Random numbers for the forecast of one job. Each name has a separate sequence,
    which no other forecast shares."""

    def __init__(self, asks: JobId) -> None:
        self._asks = asks
        self._dice: dict[object, Any] = {}

    def roll(self, name: object) -> float:
        if name not in self._dice:
            self._dice[name] = dice_named(self._asks, name)
        return float(roll(self._dice[name]))


def _run_times(
    lives: Mapping[JobId, RunTimeKnowledge], kin: RuntimeHistory, luck: _Luck
) -> dict[JobId, float]:
    """Return the total run time of each job for one replay. All jobs of a kind share
    one random number for guesses."""
    kinds = dict.fromkeys(life.kind for life in lives.values())
    common = {kind: luck.roll(kind) for kind in kinds}
    return {
        id: _run_time(life, kin, common[life.kind], luck.roll(id))
        for id, life in lives.items()
    }


def _run_time(
    life: RunTimeKnowledge, kin: RuntimeHistory, common: float, chance: float
) -> float:
    """Return a random total run time. If the job reports steps, the time follows from
    its rate of steps, varied a little. Otherwise it is drawn from similar jobs."""
    if life.left_seconds is None:
        return kin.draw(life.kind, life.ran_seconds, life.limit_seconds, common, chance)
    drawn = life.ran_seconds + life.left_seconds * (
        1 - STEPS_QUICKER + STEPS_SPREAD * chance
    )
    limit = life.limit_seconds
    return drawn if limit is None else max(life.ran_seconds, min(drawn, limit))


def _simulate_start(
    play: Play,
    job: JobId,
    until: float,
    most_passes: int,
    found: int,
    keep_on: Callable[[int], bool],
) -> float | None:
    """Return when the job starts in this replay; `until` if it has not started by then.
    Return None if the replay was ended early, by `most_passes` or `keep_on`. `found` is
    the number of finished replays."""
    while play.passes < most_passes and (not play.passes or keep_on(found)):
        passes_before = play.passes
        started_at = play.run(until=until, job=job, most_passes=PASSES_AT_ONCE)
        if started_at is not None:
            return started_at
        if play.passes < passes_before + PASSES_AT_ONCE:
            return until
    return None


def _draw_arrivals(
    present: Present,
    past: Sequence[Ran],
    submits: Sequence[float],
    kin: RuntimeHistory,
    luck: _Luck,
    since: float,
) -> list[Coming]:
    """Return the jobs of a random past period, to be submitted again. The period is
    shifted so that it begins at the last change, `since`. Jobs that would have arrived
    between that change and now are left out, because none did."""
    dice = dice_named(luck.roll("who comes"))
    start_fraction = float(roll(dice))
    if not past:
        return []
    oldest = max(submits[0], since - PAST_SECONDS)
    begin = oldest + start_fraction * max(0.0, since - oldest - HORIZON_SECONDS)
    later = since - begin
    first_index = bisect_left(submits, begin)
    stop_index = min(bisect_left(submits, since), first_index + MOST_COMING)
    by_kin = {
        q.name: present.tree.policy_of(q.name) == Policy.SJF
        for q in present.tree.queues
    }
    coming = (
        Coming(
            ran.submitted_at + later,
            _gang_from_run(ran, row, by_kin=by_kin.get(ran.queue, False)),
            _draw_run_time(ran, kin, float(roll(dice))),
        )
        for row, ran in enumerate(past[first_index:stop_index])
    )
    return [arrival for arrival in coming if arrival.at >= present.now]


def _draw_run_time(ran: Ran, kin: RuntimeHistory, chance: float) -> float:
    if not ran.is_done:
        return ran.seconds
    return kin.draw((ran.user, ran.stem, ran.shape.gpu_millis), 0.0, None, 0.0, chance)


def _gang_from_run(ran: Ran, row: int, *, by_kin: bool) -> Waiting:
    """Return a waiting gang like the ended job, behind all that wait now. `by_kin` says
    whether its queue orders jobs by the run times of similar jobs; only then is its
    name needed."""
    return Waiting(
        job=JobId(f"coming-{row}"),
        shapes=(ran.shape,),
        priority=ran.priority,
        order=(2**62 + row, 0),
        queue=ran.queue,
        user=ran.user,
        preemptible=ran.preemptible,
        stem=ran.stem if by_kin else "",
    )
