"""Run time of a job, drawn from similar jobs, else from its time limit, else from a
wide guess.

If the run time of one job is unknown, it is unknown in the same way for similar jobs:
for example, a user's tiny jobs may all end long before the same generous limit. Within
one replay, all jobs of a kind are therefore guessed by one random number (0020).
"""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable
from typing import Final

from corral.domain.ids import UserName
from corral.domain.run_history import Ran

KEPT: Final = 300  # run times of one kind
# of the jobs without kin: they run until their limit ends them
TO_THE_LIMIT: Final = 0.25
LEAST_SECONDS: Final = 1.0  # of the others: anywhere from here to the limit, by ratio
DOUBT: Final = 0.1  # this many kin weigh as much as that this job is not like them
SHORTEST_SECONDS: Final = 60.0
# of a guess, for one that has not run half as long yet
LONGEST_SECONDS: Final = 7 * 86_400.0

Kind = tuple[UserName, str, int]


class RuntimeHistory:
    """The newest run times of ended jobs. They are grouped by user, job name without
    numbers, and thousandths of GPUs."""

    def __init__(self, runs: Iterable[Ran] = ()) -> None:
        self._ranked: dict[Kind, list[float]] = {}
        self._in_turn: dict[Kind, deque[float]] = {}
        for ran in runs:
            self.add(ran)

    def add(self, ran: Ran) -> None:
        """Learn from one more ended job, which is the newest. A job that failed or was
        cancelled is ignored, because it says nothing about how long others run."""
        if not ran.is_done:
            return
        kind = (ran.user, ran.stem, ran.shape.gpu_millis)
        ranked = self._ranked.setdefault(kind, [])
        in_turn = self._in_turn.setdefault(kind, deque())
        if len(in_turn) == KEPT:
            ranked.remove(in_turn.popleft())
        in_turn.append(ran.seconds)
        insort(ranked, ran.seconds)

    def knows(self, kind: Kind, ran_seconds: float = 0.0) -> bool:
        """Return whether a recorded job of this kind ran longer than `ran_seconds`."""
        return kind in self._ranked and self._ranked[kind][-1] > ran_seconds

    def draw(
        self,
        kind: Kind,
        ran_seconds: float,
        limit_seconds: float | None,
        common: float,
        chance: float,
    ) -> float:
        """Return a random total run time in seconds for a job that has run for
        `ran_seconds`; it is longer than that.

        The run time is that of a similar job that ran longer, or else a guess. The
        fewer similar jobs there are, the more often it is a guess.

        Args:
            common: A random number from 0 to 1 that decides whether the run time is
                guessed, and the guess; it is the same for all jobs of the kind. 0 means
                that a similar job is used if there is one.
            chance: The job's own random number, which selects the similar job.
        """
        ranked = self._ranked.get(kind, [])
        first_longer = bisect_right(ranked, ran_seconds)
        longer = len(ranked) - first_longer
        trust = longer / (longer + DOUBT)
        if not longer or common >= trust:
            return _guess_run_time(
                ran_seconds, limit_seconds, (common - trust) / (1.0 - trust)
            )
        drawn = ranked[first_longer + min(int(chance * longer), longer - 1)]
        return (
            drawn
            if limit_seconds is None
            else max(ran_seconds, min(drawn, limit_seconds))
        )


def _guess_run_time(
    ran_seconds: float, limit_seconds: float | None, chance: float
) -> float:
    """Return the guessed total run time at the quantile `chance` (0 to 1) of all
    guesses.

    With a time limit, a quarter of the guesses are the limit itself. The other guesses
    lie before it, and a tenth of the limit is as likely as a hundredth. Without a
    limit, half of the guesses are more than twice as long as the job has run, and a
    quarter more than four times (a job counts as having run for SHORTEST_SECONDS at
    least).
    """
    if limit_seconds is None:
        base_seconds = max(ran_seconds, SHORTEST_SECONDS)
        longest = max(LONGEST_SECONDS, 2 * base_seconds)
        return max(ran_seconds, min(base_seconds / max(1.0 - chance, 1e-9), longest))
    left_seconds = max(0.0, limit_seconds - ran_seconds)
    guess_fraction = min(1.0, chance / (1.0 - TO_THE_LIMIT))
    return float(
        ran_seconds
        + min(
            left_seconds,
            LEAST_SECONDS * max(1.0, left_seconds / LEAST_SECONDS) ** guess_fraction,
        )
    )
