"""Hangs of running jobs: what nodes observe of ranks that make no steps, and what a job
wants to happen then."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.coded import Coded

FRAME_LETTERS: Final = 200  # of the place where a rank stands
MOST_RANK_LOOKS: Final = 64  # of one node


class HangAct(Coded):
    """Reaction to a hang of a job."""

    RESTART = "restart", "the attempt ends, and the job starts again from its last save"
    ALERT = "alert", "an event and an alert are recorded, and the attempt goes on"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRule:
    """Rule by which hangs of a job are found.

    Args:
        is_on: Hangs are looked for; steps are counted also without it.
        bound_seconds: Longest time without a step, in each phase of the job and also
            before its first step; None: bounds are learned from the job itself.
        act: Reaction to a hang.
    """

    is_on: bool = True
    bound_seconds: float | None = None
    act: HangAct = HangAct.RESTART


class RankState(StrEnum):
    """State of the process of a rank, as the operating system reports it."""

    RUNNING = "running"
    SLEEPING = "sleeping"
    STOPPED = "stopped"  # by a signal or a debugger
    UNINTERRUPTIBLE = "uninterruptible"  # it waits for a device or a file system
    ABSENT = "absent"  # the process does not exist


class StallPhase(StrEnum):
    """Part of its work in which a job makes no steps."""

    FIRST_STEP = "first_step"
    COMPUTE = "compute"
    DATA = "data"
    SAVE = "save"
    EVALUATE = "evaluate"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLook:
    """Observation of one rank at one moment.

    Args:
        step: The newest step that it reported.
        frame: Where it stands, such as "train.py:18 in load"; "" if it is not known.
        is_in_collective: It waits for other ranks.
        collective: Sequence number of the last collective that it began; None if it is
            not known.
        operation: Name of that collective; "" if it is not known.
        is_busy: It has worked since the look before: its calls have changed, or it has
            read or written files.
    """

    rank: int
    pid: int
    step: int
    state: RankState
    frame: str = ""
    is_in_collective: bool = False
    collective: int | None = None
    operation: str = ""
    is_busy: bool = False

    @property
    def function(self) -> str:
        """Return the frame without its line: a loop stands at several lines."""
        file, _, place = self.frame.partition(":")
        return f"{file} {place.partition(' ')[2]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHang:
    """Report of a node on which no rank of an attempt makes steps. It is renewed while
    that lasts.

    Args:
        rank_looks: Two looks at the ranks of the node, at least 2 s apart.
        stalled_seconds: Time since the newest step, without times in which the whole
            node was paused.
        bound_seconds: Longest such time that is normal in this phase of the job.
        phase: Phase of those ranks that do not wait for others.
        is_user_bound: The bound is the user's own, and not learned.
        cannot_read: Why stacks could not be read; "" otherwise.
    """

    rank_looks: tuple[tuple[RankLook, ...], tuple[RankLook, ...]]
    stalled_seconds: float
    bound_seconds: float
    phase: StallPhase = StallPhase.COMPUTE
    is_user_bound: bool = False
    cannot_read: str = ""
