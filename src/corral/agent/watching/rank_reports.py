"""Reports that ranks send by themselves while they make no steps: their last collective
operations, and where their main thread stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from corral.domain.bounds import NAME_LETTERS, cut, integer
from corral.domain.hang import StallPhase
from corral.domain.process_stacks import StackFrame

MOST_COLLECTIVES: Final = 20
MOST_REPORT_FRAMES: Final = 50
MOST_REPORTS: Final = 64  # of an attempt on one node
_PHASES: Final = {
    "save": StallPhase.SAVE,
    "checkpoint": StallPhase.SAVE,
    "data": StallPhase.DATA,
}
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """Newest report of one rank about itself.

    Args:
        collectives: Its last collectives, each as number and name, the newest last.
        is_pending: Whether the newest has not completed; None if it is not known.
        frames: The calls of its main thread, the innermost first.
    """

    rank: int
    step: int
    collectives: tuple[tuple[int, str], ...] = ()
    is_pending: bool | None = None
    frames: tuple[StackFrame, ...] = ()


def report_record(message: Message) -> dict[str, Any]:
    """Return the record of a rank's message, within bounds. Raises: OutOfBounds,
    KeyError, TypeError, ValueError."""
    return {
        "type": "stalled",
        "rank": integer("rank", message["rank"], least=0),
        "step": integer("step", message["step"], least=0),
        "collectives": [
            [integer("collective", number, least=0), _name(name)]
            for number, name in message.get("collectives", ())[-MOST_COLLECTIVES:]
        ],
        "is_pending": None
        if message.get("is_pending") is None
        else bool(message["is_pending"]),
        "frames": [
            [_name(function), _name(file), integer("line", line, least=0)]
            for function, file, line in message.get("frames", ())[:MOST_REPORT_FRAMES]
        ],
    }


def report_of(record: Message) -> RankReport:
    """Return the report of a record that a shim has sent. Raises: as report_record."""
    checked = report_record(record)
    return RankReport(
        rank=checked["rank"],
        step=checked["step"],
        collectives=tuple((number, name) for number, name in checked["collectives"]),
        is_pending=checked["is_pending"],
        frames=tuple(
            StackFrame(function=function, file=file, line=line)
            for function, file, line in checked["frames"]
        ),
    )


def phase_named(name: str) -> StallPhase:
    """Return the phase of a name that a program has declared. A name of its own is a
    phase without steps, as an evaluation is."""
    return _PHASES.get(name, StallPhase.EVALUATE) if name else StallPhase.COMPUTE


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a name must be a text, not {type(value).__name__}")
    return cut(value, NAME_LETTERS)
