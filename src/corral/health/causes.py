"""Of what ranks print last and how they end: what failed, and which rank began.

A rank that lost its peers tells of the peers: where another rank of the gang has a cause of its
own, or was still silent when the others gave up, that one is to blame.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from corral.domain.attempt import Exit
from corral.domain.failure import Failure, FailureKind
from corral.domain.ids import NodeId
from corral.health.patterns import MACHINE, PATTERNS, Pattern

QUOTE_CHARACTERS: Final = 300
LAST_LINES: Final = 15
SHELL_SIGNALS: Final = 128  # a shell answers with this and the signal of what it ran
_ABORT, _KILL, _TERM = 6, 9, 15
_CRASHES: Final = frozenset({4, _ABORT, 7, 8, 11})  # ILL, BUS, FPE and SEGV beside it
_LIMITS: Final = frozenset({24, 25})  # XCPU, XFSZ
_PREFIX: Final = re.compile(r"^(\[(?:rank|default)\d+\]:\s?)")
_RAISED: Final = re.compile(r"^[A-Za-z_][\w.]*(?::\s|:?$)")
_ROOT: Final = re.compile(r"Root Cause.*?rank\s*:\s*(\d+) .*?exitcode\s*:\s*(-?\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """A rank and how it ended; `exit` None: it had not when the others failed."""

    rank: int
    node: NodeId
    exit: Exit | None
    tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What one rank's end shows. `of_peers`: it may be the consequence of another's; `at`: when."""

    end: RankEnd
    kind: FailureKind
    at: float
    quote: str = ""
    of_peers: bool = False


def failure_of(ends: Sequence[RankEnd]) -> Failure | None:
    """What the ranks of a gang failed of; None where none of them failed."""
    failed = [_read(end, end.exit) for end in ends if end.exit and not end.exit.clean]
    if not failed:
        return None
    first_at = min(one.at for one in failed)
    stopped = [one for one in failed if one.kind == FailureKind.KILLED and one.at > first_at]
    told = [one for one in failed if one not in stopped]
    own = [one for one in told if not one.of_peers]
    if own:
        first = min(own, key=lambda one: (one.kind == FailureKind.UNKNOWN, one.at, one.end.rank))
        return _failure(first, alike=sum(one.kind == first.kind for one in own))
    hung = next((one for one in told if one.kind == FailureKind.HANG), None)
    quiet = [end for end in ends if end.exit is None or end.exit.clean]
    quiet += [one.end for one in stopped]
    first = hung or min(told, key=lambda one: (one.at, one.end.rank))
    if quiet:
        missing = min(quiet, key=lambda end: end.rank)
        return _failure(replace(first, end=missing, kind=FailureKind.HANG), alike=len(quiet))
    return _failure(first, alike=len(told))


def _failure(one: _Read, *, alike: int) -> Failure:
    end = one.end
    return Failure(
        kind=one.kind,
        culprit=f"rank {end.rank} on {end.node}",
        node=end.node,
        rank=end.rank,
        quote=one.quote,
        alike=alike,
    )


def _read(end: RankEnd, exit: Exit) -> _Read:
    """By what it says, where its end alone does not say more."""
    text = _plain(end.tail)
    end, exit = _of_torchrun(end, exit, text)
    last = _lines(text)[-LAST_LINES:]
    by_end, said = _by_end(exit), _by_words(_raised(text), last)
    read = _Read(end=end, kind=FailureKind.UNKNOWN, at=exit.at, quote=last[-1] if last else "")
    if exit.out_of_memory:
        return replace(read, kind=FailureKind.HOST_MEMORY, quote="")
    if by_end is not None and not _says_more(said, exit):
        return replace(read, kind=by_end)
    raised = _raised(text)
    if exit.code in (126, 127) and not raised:  # what a shell ends with that could not start it
        return replace(read, kind=FailureKind.COMMAND)
    if said is not None:
        pattern, line = said
        return replace(read, kind=pattern.kind, quote=line, of_peers=pattern.of_peers)
    return replace(read, kind=FailureKind.PROGRAM, quote=raised[-1]) if raised else read


def _says_more(said: tuple[Pattern, str] | None, exit: Exit) -> bool:
    """Whether the words are believed where a signal ended it: one that aborts itself tells why, and
    one that was told to stop may have lost its peers. Nobody tells of having been killed."""
    signal = _signal_of(exit)
    if said is None or signal == _KILL:
        return False
    pattern, _ = said
    if signal in (_ABORT, _TERM):
        return True
    return pattern.kind in MACHINE and not pattern.of_peers


def _signal_of(exit: Exit) -> int | None:
    if exit.signal is None and exit.code is not None and exit.code > SHELL_SIGNALS:
        return exit.code - SHELL_SIGNALS
    return exit.signal


def _by_end(exit: Exit) -> FailureKind | None:
    """What the end alone tells, also where a shell stands between."""
    signal = _signal_of(exit)
    if signal in _CRASHES:
        return FailureKind.CRASH
    if signal in _LIMITS:
        return FailureKind.LIMITS
    if signal in (_KILL, _TERM):
        return FailureKind.KILLED
    return FailureKind.INTERRUPTED if signal == 2 else None


def _by_words(raised: Sequence[str], last: Sequence[str]) -> tuple[Pattern, str] | None:
    """What errors that were raised tell comes before what else was printed, the last of them first
    that is no consequence; of that else, only what is wrong with the machine where an error was
    raised: programs warn of much that did not end them."""
    found = [hit for line in reversed(raised) if (hit := _hit(line, PATTERNS)) is not None]
    if not found:
        patterns = [one for one in PATTERNS if one.kind in MACHINE] if raised else PATTERNS
        found = [hit for line in reversed(last) if (hit := _hit(line, patterns)) is not None]
        found.sort(key=lambda hit: PATTERNS.index(hit[0]))
    return next((hit for hit in found if not hit[0].of_peers), found[0] if found else None)


def _hit(line: str, patterns: Sequence[Pattern]) -> tuple[Pattern, str] | None:
    return next(((one, line) for one in patterns if one.words.search(line)), None)


def _of_torchrun(end: RankEnd, exit: Exit, text: str) -> tuple[RankEnd, Exit]:
    """Of a launcher that tells which of its workers failed first, that one."""
    match = _ROOT.search(text)
    if match is None:
        return end, exit
    code = int(match[2])
    inner = replace(exit, code=None, signal=-code) if code < 0 else replace(exit, code=code or 1)
    return replace(end, rank=int(match[1])), inner if code < 0 or exit.code is not None else exit


def _plain(tail: str) -> str:
    """Without what a terminal would act on."""
    cleaned = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", tail)
    rows = (_PREFIX.sub("", row) for row in cleaned.replace("\r", "\n").split("\n"))
    shown = ("".join(sign if sign.isprintable() else " " for sign in row) for row in rows)
    return "\n".join(row for row in shown if not row.startswith("[corral]"))


def _lines(text: str) -> list[str]:
    return [line.strip()[:QUOTE_CHARACTERS] for line in text.split("\n") if line.strip()]


def _raised(text: str) -> list[str]:
    """The line below each traceback of Python: the error that was raised, oldest first."""
    found, inside = [], False
    for line in text.split("\n"):
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and line[:1].strip() and _RAISED.match(line):
            found.append(line.strip()[:QUOTE_CHARACTERS])
            inside = False
    return found
