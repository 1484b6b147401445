"""Recognition of log lines that match the patterns of a class of failures, and the
choice of the line that counts."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from corral.domain.failure_class import FailureKind
from corral.health.error_blocks import is_report_of_shell, sentence
from corral.health.helper_loss import is_helper_lost, is_of_child
from corral.health.log_parser import Printed
from corral.health.network_words import HELPER_LOST
from corral.health.pattern_form import Pattern
from corral.health.patterns import PATTERNS, pattern_of
from corral.health.raised_errors import Raised
from corral.health.script_commands import is_missing_command

INITIALIZER: Final = "Exception in initializer:"  # of worker processes, which end by it
BROKEN_POOL: Final = "BrokenProcessPool"
CRLF: Final = r"\r"  # such a script fails in many ways, of which the first lines tell
LAUNCHER: Final = "ChildFailedError"  # of torchrun: the error that closes its log
GAVE_UP: Final = re.compile(
    r"\b(?:giv(?:e|ing)|gave) up\b|\b(?:after|exceeded|exhausted|too many|max\w*) .{0,20}"
    r"\b(?:tries|retries|attempts)\b|\bretr(?:y|ies)\w* .{0,20}\b(?:exhausted|exceeded|failed)\b",
    re.IGNORECASE,
)
ENDS_BY_SIGNAL: Final = frozenset({FailureKind.CRASH, FailureKind.KILLED})
_INSTALLED: Final = frozenset({FailureKind.MODULE, FailureKind.PACKAGE})
_DOWNLOADS: Final = frozenset(  # why an installer does not reach its index
    {
        FailureKind.NETWORK,
        FailureKind.CERTIFICATE,
        FailureKind.SERVICE_TIMEOUT,
        FailureKind.SERVICE,
        FailureKind.PROXY,
        FailureKind.DNS,
    }
)

Hit = tuple[Pattern, str]  # and the line that has its words, with what continues it


def by_words(log: Printed, *, with_chatter: bool) -> Hit | None:
    """Return the best match of the log with a pattern; None without one. Raised errors
    come before other output. Of the raised errors, the newest counts that is not a
    consequence of another rank's failure.

    Where an error was raised, other output counts only if it reports a fault of the
    machine. It does not count at all if the error is the program's own mistake:
    programs print many warnings that do not end them. `with_chatter`: lines of progress
    and retries count too.
    """
    raised = [
        raised_error for raised_error in log.raised if not raised_error.is_wrapper
    ]
    peers: list[Hit] = []
    for _, errors in groupby(reversed(raised), key=lambda one: one.chain):
        chain = list(errors)
        hits = [
            hit
            for raised_error in chain
            if (hit := hit_of(raised_error, log.text)) is not None
        ]
        if (
            own_hit := next((hit for hit in hits if not hit[0].of_peers), None)
        ) is not None:
            return own_hit
        if not hits and not peers and chain[0].is_own:
            return None
        peers += hits
    if raised:
        # elsewhere an error may be explained below it
        is_python = raised[-1].step is None
        beside = reversed(_find_hits(log.last, machine_only=is_python))
        return _select_best_hit(
            [*(hit for hit in beside if hit[0].kind not in ENDS_BY_SIGNAL), *peers]
        )
    best_pattern = _select_best_hit(reversed(_find_hits(log.last)))
    if best_pattern is None and not log.is_stated:
        best_pattern = _select_best_hit(_find_hits(log.warnings))
    retried = _select_best_hit(_find_hits(log.chatter)) if with_chatter else None
    if best_pattern is None:
        return None if log.complaint else retried
    # an installer cannot reach its index
    is_consequence = best_pattern[0].kind in _INSTALLED
    if is_consequence and retried is not None and retried[0].kind in _DOWNLOADS:
        return retried
    return best_pattern


def without_losses(log: Printed) -> Printed:
    """Return the log without the errors that only report a lost worker, if other errors
    remain. This applies to the log of a launcher, which its workers share. In the same
    way, the error about a broken process pool is dropped if its workers could not
    start, and those of child processes whose parent had failed before."""
    log = _with_errors(
        log,
        [
            raised
            for raised in log.raised
            if not is_helper_lost(raised, log.text) or not is_of_child(raised, log.text)
        ],
    )
    if INITIALIZER in log.text:
        raiseds = [
            raised for raised in log.raised if BROKEN_POOL not in raised.lines[0]
        ]
        return replace(log, raised=tuple(raiseds)) if raiseds else log
    is_launched = any(LAUNCHER in raised.lines[0] for raised in log.raised)
    if not is_launched and not log.is_shared:
        return log
    hits = [(raised, hit_of(raised)) for raised in log.raised]
    return _with_errors(
        log, [raised for raised, hit in hits if hit is None or not hit[0].of_peers]
    )


def _with_errors(log: Printed, raiseds: Sequence[Raised]) -> Printed:
    """Return the log with these errors only, if one of them is a program's own."""
    has_own = any(not raised.is_wrapper for raised in raiseds)
    return replace(log, raised=tuple(raiseds)) if has_own else log


def without_outlived(log: Printed) -> Printed:
    """Return the log without "command not found" messages that another error follows.
    The script continued after such a command; the last failing command is the one that
    ended it."""
    ending = log.last_error
    kept_lines = tuple(
        line
        for line_index, line in enumerate(log.last)
        if line_index >= ending or CRLF in line or not is_missing_command(line)
    )
    return replace(log, last=kept_lines) if len(kept_lines) < len(log.last) else log


def by_retries(log: Printed, error: str) -> Hit | None:
    """Return the pattern and the line of the failure after which a program retried
    until it gave up; None if `error` does not say that it gave up, or no line matches.
    """
    if GAVE_UP.search(error) is None:
        return None
    return _select_best_hit(
        reversed(_find_hits([*log.chatter, *log.warnings, *log.last]))
    )


def hit_of(one: Raised, text: str = "") -> Hit | None:
    """Return the pattern and the line that show the class of an error; None if its
    message shows none. For the program's own mistakes only the first line counts.
    `text`: the text of the log."""
    if is_helper_lost(one, text):
        return HELPER_LOST, one.lines[0]
    hit = _select_best_hit(_find_hits(one.lines[:1] if one.is_own else one.lines))
    if hit is not None and hit[0].kind in ENDS_BY_SIGNAL:
        return hit[0], sentence(one.lines)  # a later line only repeats how it ended
    return hit


def _find_hits(lines: Sequence[str], *, machine_only: bool = False) -> list[Hit]:
    patterns = (
        (pattern_of(line, machine_only=machine_only), line_index)
        for line_index, line in enumerate(lines)
    )
    return [
        (pattern, sentence(lines, line_index))
        for pattern, line_index in patterns
        if pattern is not None
    ]


def _select_best_hit(hits: Iterable[Hit]) -> Hit | None:
    """Return the most specific match that is not a consequence of another rank's
    failure; without such a match, the most specific of all. Return None without any
    match."""
    return min(hits, key=_rank_of_hit, default=None)


def _rank_of_hit(hit: Hit) -> tuple[bool, int, bool, bool]:
    pattern, line = hit
    return (
        pattern.of_peers,
        PATTERNS.index(pattern),
        is_report_of_shell(line),
        line.startswith("{"),
    )
