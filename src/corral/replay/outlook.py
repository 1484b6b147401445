"""When a gang will start: the present played forward many times, by the live decision itself.

What is not known is drawn: how long each job runs, from its kin; and who will come, from a stretch
of the past that is played again. Plain Python, so that no head waits for a compiler.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from corral.domain.forecast import Ran
from corral.domain.ids import JobId
from corral.replay.dice import dice_of, roll
from corral.replay.kin import Kin, Kind
from corral.replay.live import Play
from corral.replay.present import Coming, Present
from corral.schedule.waiting import Waiting

HORIZON_SECONDS: Final = 10 * 86_400.0  # so far ahead it is looked; no start by then counts as this
PAST_SECONDS: Final = 14 * 86_400.0  # so far back a stretch of submissions may begin
MOST_COMING: Final = 200  # of one run
FEWEST: Final = 5  # runs, however long they take


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What is known of how long a job runs: its kind, how long it has, and its limit (seconds)."""

    kind: Kind
    ran_seconds: float = 0.0
    limit_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One run: seconds from now to the start, and from there to the end."""

    wait_seconds: float
    run_seconds: float


def outlook(
    present: Present,
    lives: Mapping[JobId, Life],
    kin: Kin,
    past: Sequence[Ran],
    job: JobId,
    *,
    runs: int,
    seed: int,
    most_passes: float,
    keep_on: Callable[[], bool],
) -> list[Drawn]:
    """What becomes of the waiting job, one of each run; fewer where `keep_on` says that it is
    enough.

    Args:
        lives: of every gang of the present.
        past: ended jobs in the order in which they were submitted.
        most_passes: of one run. One that sees no start within them counts as the horizon.
    """
    dice = dice_of(seed)
    submits = [ran.submitted_at for ran in past]
    found: list[Drawn] = []
    while len(found) < runs and (len(found) < FEWEST or keep_on()):
        whole = {
            id: kin.draw(life.kind, life.ran_seconds, life.limit_seconds, dice)
            for id, life in lives.items()
        }
        left = {id: seconds - lives[id].ran_seconds for id, seconds in whole.items()}
        coming = _coming(present.now, past, submits, kin, dice)
        play = Play(present, left, coming)
        until = present.now + HORIZON_SECONDS
        at = play.run(until=until, job=job, most_passes=most_passes)
        wait = HORIZON_SECONDS if at is None else max(0.0, at - present.now)
        found.append(Drawn(wait_seconds=wait, run_seconds=left[job]))
    return found


def _coming(
    now: float, past: Sequence[Ran], submits: Sequence[float], kin: Kin, dice: Any
) -> list[Coming]:
    """Those of a stretch of the past, submitted again from now on."""
    where = float(roll(dice))
    if not past:
        return []
    oldest = max(submits[0], now - PAST_SECONDS)
    begin = oldest + where * max(0.0, now - oldest - HORIZON_SECONDS)
    first = bisect_left(submits, begin)
    last = min(bisect_left(submits, now), first + MOST_COMING)
    later = now - begin
    return [
        Coming(
            past[row].submitted_at + later, _gang(past[row], row), _seconds(past[row], kin, dice)
        )
        for row in range(first, last)
    ]


def _seconds(ran: Ran, kin: Kin, dice: Any) -> float:
    return kin.draw((ran.user, ran.stem, ran.shape.gpu_millis), 0.0, None, dice)


def _gang(ran: Ran, row: int) -> Waiting:
    """A job like that one, behind all that wait now."""
    return Waiting(
        job=JobId(f"coming-{row}"),
        shapes=(ran.shape,),
        priority=ran.priority,
        order=(2**62 + row, 0),
        queue=ran.queue,
        user=ran.user,
        preemptible=ran.preemptible,
    )
