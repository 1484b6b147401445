"""How long a job will run: drawn from its kin, else from its limit, else a wide guess."""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from corral.domain.forecast import Ran
from corral.domain.ids import UserName
from corral.replay.dice import roll

KEPT: Final = 100  # run times of one kind
TO_THE_LIMIT: Final = 0.5  # of the jobs without kin: they run until their limit ends them
SHORTEST_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 7 * 86_400.0  # of a guess, for one that has not run half as long yet

Kind = tuple[UserName, str, int]


class Kin:
    """The newest run times of ended jobs by user, stem of the name, and thousandths of GPUs."""

    def __init__(self, runs: Iterable[Ran] = ()) -> None:
        self._ranked: dict[Kind, list[float]] = {}
        self._in_turn: dict[Kind, deque[float]] = {}
        for ran in runs:
            self.add(ran)

    def add(self, ran: Ran) -> None:
        """Learn from one more; it is the newest."""
        kind = (ran.user, ran.stem, ran.shape.gpu_millis)
        ranked = self._ranked.setdefault(kind, [])
        in_turn = self._in_turn.setdefault(kind, deque())
        if len(in_turn) == KEPT:
            ranked.remove(in_turn.popleft())
        in_turn.append(ran.seconds)
        insort(ranked, ran.seconds)

    def knows(self, kind: Kind, ran_seconds: float = 0.0) -> bool:
        """Whether any of these has run longer than that."""
        return kind in self._ranked and self._ranked[kind][-1] > ran_seconds

    def draw(self, kind: Kind, ran_seconds: float, limit_seconds: float | None, dice: Any) -> float:
        """The whole run time of a job that has run for so long, in seconds: more than that.

        One of those of its kin that ran longer; without any, half of the draws are its limit and
        the others lie anywhere before it; without a limit, half of them are more than twice as long
        as it ran, a quarter more than four times (and it ran SHORTEST_SECONDS at the least).
        """
        chance = float(roll(dice))
        if self.knows(kind, ran_seconds):
            ranked = self._ranked[kind]
            first = bisect_right(ranked, ran_seconds)
            drawn = ranked[first + int(chance * (len(ranked) - first))]
            return drawn if limit_seconds is None else max(ran_seconds, min(drawn, limit_seconds))
        if limit_seconds is not None:
            left = max(0.0, limit_seconds - ran_seconds)
            return ran_seconds + left * min(1.0, chance / (1.0 - TO_THE_LIMIT))
        since = max(ran_seconds, SHORTEST_SECONDS)
        longest = max(LONGEST_SECONDS, 2 * since)
        return max(ran_seconds, min(since / max(1.0 - chance, 1e-9), longest))
