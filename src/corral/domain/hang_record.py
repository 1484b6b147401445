"""Record of a hang: which rank was stuck, where all ranks stood, and what was done."""

from dataclasses import dataclass
from typing import Final

from corral.domain.hang import HangAct, StallPhase
from corral.domain.ids import NodeId
from corral.domain.units import duration_text, spans_text

MOST_PLACES: Final = 8  # different places of ranks in one record
MOST_PLACE_RANKS: Final = 16  # numbers of ranks that are listed of one place
# hangs of a job in a row at the same step, from which on its user is charged
HANGS_AT_ONE_STEP: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Place where one or more ranks of a hung gang stood.

    Args:
        frame: Such as "train.py:18 in load"; "" if it could not be read.
        ranks: Numbers of the first of these ranks.
        count: Number of all of them.
        is_in_collective: They waited for other ranks.
        operation: Name of the collective; "" if it is not known.
    """

    frame: str
    ranks: tuple[int, ...]
    count: int
    is_in_collective: bool = False
    operation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangRecord:
    """Hang of an attempt, as it was when it was acted on.

    Args:
        at: When that was, by the head's wall clock.
        stalled_seconds: Time without a step until then.
        step: Newest step of the rank that had made the fewest.
        newest_step: Newest step that was reported; a later one ends the hang.
        why: The verdict as a sentence, with places in the program.
        rank: The stuck rank; None if that is not sure.
        node: Node of that rank.
        condition: Such as "is stopped by a signal"; "" if it only stands still.
        frame: Where that rank stood; "" if it could not be read.
        blames_machine: The node was at fault, and not the program.
        times: Number of hangs of the job in a row at this step, with this one.
        places: Where all ranks stood, the place of the most ranks first.
        cannot_read: Why stacks of a node could not be read; "" otherwise.
    """

    at: float
    stalled_seconds: float
    step: int
    newest_step: int | None
    act: HangAct
    why: str
    phase: StallPhase = StallPhase.COMPUTE
    rank: int | None = None
    node: NodeId | None = None
    condition: str = ""
    frame: str = ""
    blames_machine: bool = False
    times: int = 1
    places: tuple[RankPlace, ...] = ()
    cannot_read: str = ""

    @property
    def is_charged_to_user(self) -> bool:
        """Whether the program is to blame, because it hangs at the same step again and
        again."""
        return self.times >= HANGS_AT_ONE_STEP and not self.blames_machine

    @property
    def evidence(self) -> str:
        """Return what is recorded as the cause of the attempt's end, for all who see the
        job."""
        text = self.text(whole=False)
        if not self.is_charged_to_user:
            return text
        return (
            f"{text}; the program hung {self.times} times in a row at this step, which "
            "counts as its own failure"
        )

    def text(self, now: float | None = None, *, whole: bool) -> str:
        """Return a sentence about the hang.

        Args:
            now: The present moment of the wall clock, while the hang lasts; None: as it
                was when it was acted on.
            whole: Whether places in the program are shown.
        """
        waited = self.stalled_seconds + (0.0 if now is None else max(0, now - self.at))
        text = f"{stall_text(waited, self.step)}: {self._stuck_text(whole=whole)}"
        return f"{text}; the node is at fault" if self.blames_machine else text

    def _stuck_text(self, *, whole: bool) -> str:
        if self.rank is None:
            return self.why if whole else "it is not sure which rank is stuck"
        place = f" at {self.frame}" if whole and self.frame else ""
        condition = self.condition or ("stands" if place else "is stuck")
        text = f"rank {self.rank} on {self.node} {condition}{place}"
        waiting = [place for place in self.places if place.is_in_collective]
        count = sum(place.count - (self.rank in place.ranks) for place in waiting)
        if not count:
            return text
        operations = {place.operation for place in waiting if place.operation}
        operation = operations.pop() if len(operations) == 1 else "a collective"
        ranks = "rank waits" if count == 1 else "ranks wait"
        return f"{text}; {count:,} other {ranks} for it in {operation}"


def stall_text(seconds: float, step: int) -> str:
    """Return a text about the time without a step. For example: no step for 34 s after
    step 20."""
    since = f"after step {step:,}" if step > 0 else "since the attempt began"
    return f"no step for {duration_text(seconds)} {since}"


def place_text(place: RankPlace) -> str:
    """Return a line about the ranks at one place. For example: ranks 0-1,3 (in
    all_reduce): train.py:24 in step."""
    more = place.count - len(place.ranks)
    ranks = f"{'rank' if place.count == 1 else 'ranks'} {spans_text(place.ranks)}"
    ranks += f" and {more:,} more" * (more > 0)
    waits = f" (in {place.operation or 'a collective'})" * place.is_in_collective
    return f"{ranks}{waits}: {place.frame or 'not known'}"
