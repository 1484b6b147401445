"""Messages of ranks and launchers about other processes: which rank they waited for,
and how a worker ended."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from signal import Signals
from typing import Final

from corral.domain.attempt import Exit

# Ranks print what they like: each repeat below has an end, so that time grows with the
# text alone.
_TASK: Final = r"\s{0,9}(?:/job:\w{1,99}/replica:\d{1,9})?/task:(\d{1,9})"
# each names ranks that did not come; before it a word that is soon looked for
_AWAITED: Final = {
    "monitoredBarrier": re.compile(
        r"\bRanks? (\d{1,9}(?:, ?\d{1,9})*) failed to pass monitoredBarrier"
    ),
    "issing rank": re.compile(r"\b[Mm]issing ranks?:? \[?(\d{1,9}(?:, ?\d{1,9})*)"),
    "imed out task": re.compile(rf"imed out task names:{_TASK}"),
    "sending heartbeats": re.compile(rf"sending heartbeats\):{_TASK}"),
    "heartbeat timeout": re.compile(r"/task:(\d{1,9})\W{0,3} heartbeat timeout"),
    "Rank ": re.compile(r"\bRank (\d{1,9}) (?:is|was) (?:lost|dead|gone)\b"),
}
_ENQUEUED: Final = re.compile(
    r"\[PG (?:ID )?([^\]]{0,100}?),? ?Rank \d{1,9}\].{0,300}?"
    r"last enqueued (?:NCCL )?work: (\d{1,18})"
)
_TIMED_OUT: Final = re.compile(r"WorkNCCL\(SeqNum=(\d{1,18})")
# of torchrun's report: the worker follows within _ROOT_CHARACTERS
_ROOT: Final = "Root Cause"
_FAILURES: Final = "\nFailures:"
_STOPPED: Final = re.compile(
    r"\brank\s{0,9}:\s{0,9}(\d{1,9}) [^\n]{0,60}\n\s{0,9}exitcode\s{0,9}:\s{0,9}-(?:9|15) "
)
_ROOT_CHARACTERS: Final = 4096
_ROOT_RANK: Final = re.compile(r"rank\s{0,9}:\s{0,9}(\d{1,9}) ")
_ROOT_CODE: Final = re.compile(r"exitcode\s{0,9}:\s{0,9}(-?\d{1,9})")
_NAMED: Final = re.compile(r"^\[(?:rank|default)(\d{1,9})\]:")
_LAUNCHERS: Final = (  # how the worker of a launcher ended that itself ends otherwise
    re.compile(r"exits with return code = (-\d{1,9})"),  # DeepSpeed
    re.compile(
        r"CalledProcessError: .{0,500} died with <Signals\.\w{1,9}: (\d{1,9})>"
    ),  # subprocess
    re.compile(
        r"(?:exited on|terminated by|killed by|terminated with) signal (?:SIG\w{1,9} )?\(?(\d{1,9})"
    ),
    # joblib
    re.compile(r"exit ?codes? of the workers? (?:are|is) \{?\w{0,9}\((-\d{1,9})\)"),
)
_ABORTED: Final = re.compile(  # Open MPI, Intel MPI, MPICH
    r"^MPI_ABORT was invoked on rank (\d{1,9})\b"
    r"|^Abort\(-?\d{1,9}\)(?: \(rank \d{1,9} in comm \d{1,9}\))? on node (\d{1,9})\b"
    r"|^application called MPI_Abort\([^)\n]{1,80}\) - process (\d{1,9})\b"
    r"|^\w{1,20} noticed that process rank (\d{1,9}) with PID \d{1,9} on node ",
    re.MULTILINE,
)
_BY_NUMBER: Final = re.compile(
    r"\b(?:exit|return)\w{0,9} ?(?:code|status)?\W{1,3}-(\d{1,2})\b"
)
_CHILDREN: Final = re.compile(  # the same, where it names the signal by its word
    r"(?:\*\*\* \[[^\]]{0,200}\]|\b(?:exited on|terminated by|killed by|terminated with"
    r"|died (?:with|from|by|of))(?: signal)?:?) (?:Signals\.)?(SIG[A-Z]+|Killed|Terminated|Aborted|"
    r"Segmentation fault|Bus error|Floating point exception|Illegal instruction)\b"
)
_BY_WORD: Final[Mapping[str, Signals]] = {
    "Killed": Signals.SIGKILL,
    "Terminated": Signals.SIGTERM,
    "Aborted": Signals.SIGABRT,
    "Segmentation fault": Signals.SIGSEGV,
    "Bus error": Signals.SIGBUS,
    "Floating point exception": Signals.SIGFPE,
    "Illegal instruction": Signals.SIGILL,
    **Signals.__members__,
}


def awaited(tail: str) -> Iterator[int]:
    """Yield the ranks that the log names as missing."""
    for hint, await_pattern in _AWAITED.items():
        for match in await_pattern.finditer(tail) if hint in tail else ():
            yield from (int(rank) for rank in match[1].split(","))


def stopped_by_launcher(text: str) -> list[int]:
    """Return the ranks that were still running when torchrun stopped them after the
    first failure."""
    begin = text.rfind(_FAILURES)
    report = text[begin : begin + _ROOT_CHARACTERS] if begin >= 0 else ""
    return [int(match[1]) for match in _STOPPED.finditer(report.partition(_ROOT)[0])]


def behind(tails: Mapping[int, str]) -> int | None:
    """Return the rank that has started the fewest collectives, if all ranks timed out;
    None if no rank is behind. Ranks are compared in the process group that most of them
    report. `tails`: rank -> end of its log."""
    for count_pattern in (_ENQUEUED, _TIMED_OUT):
        matches = {
            rank: match
            for rank, tail in tails.items()
            if (match := count_pattern.search(tail))
        }
        groups = Counter(
            match[1] if count_pattern is _ENQUEUED else "" for match in matches.values()
        )
        for group, _ in groups.most_common(1):
            done = {
                rank: int(match[match.lastindex or 1])
                for rank, match in matches.items()
                if count_pattern is _TIMED_OUT or match[1] == group
            }
            if len(set(done.values())) > 1:
                return min(done, key=lambda rank: (done[rank], rank))
    return None


def rank_of_mpi(text: str) -> int | None:
    """Return the rank that called MPI_Abort or was ended by a signal, as the launcher
    of MPI in this log reports it; None without a report."""
    has_report = "bort" in text or "noticed that" in text
    match = _ABORTED.search(text) if has_report else None
    return None if match is None else next(int(one) for one in match.groups() if one)


def streams(text: str) -> dict[int, str]:
    """Split a log that several ranks share by the rank prefix of its lines, and return
    the output of each rank."""
    stream_lines: dict[int, list[str]] = {}
    for row in text.replace("\r", "\n").split("\n"):
        if (rank_match := _NAMED.match(row)) is not None:
            stream_lines.setdefault(int(rank_match[1]), []).append(row)
    return {rank: "\n".join(rows) for rank, rows in stream_lines.items()}


def without_streams(text: str) -> str:
    """Return the rows of a log that have no rank prefix."""
    rows = text.replace("\r", "\n").split("\n")
    return "\n".join(row for row in rows if _NAMED.match(row) is None)


def inner_end(text: str, exit: Exit, last: str = "") -> tuple[int | None, Exit]:
    """Return the rank (None: unknown) and the exit of the worker that, by the
    launcher's report, failed first. Without such a report the exit is `exit` itself.
    `last`: the launcher's newest report; the attempt survived failures that were
    reported earlier."""
    if (root := _root_cause(text)) is not None:
        rank, code = root
        return rank, exit if code >= 0 and exit.code is None else _exit_with_code(
            exit, code
        )
    for exit_pattern in _LAUNCHERS if exit.code is not None else ():
        if (match := exit_pattern.search(text)) is not None:
            return None, _exit_with_code(exit, -abs(int(match[1])))
    if (
        exit.code is not None
        and (signal_match := _CHILDREN.search(last))
        and signal_match[1] in _BY_WORD
    ):
        return None, _exit_with_code(exit, -_BY_WORD[signal_match[1]])
    if exit.code is not None and (numbered := _BY_NUMBER.search(last)):
        return None, _exit_with_code(exit, -int(numbered[1]))
    return None, exit


def _root_cause(text: str) -> tuple[int, int] | None:
    """Return the rank that torchrun reports as first to fail, and its exit code; None
    without a report."""
    begin = text.find(_ROOT)
    report = text[begin : begin + _ROOT_CHARACTERS] if begin >= 0 else ""
    rank = _ROOT_RANK.search(report)
    code = _ROOT_CODE.search(report, rank.end()) if rank is not None else None
    return None if rank is None or code is None else (int(rank[1]), int(code[1]))


def _exit_with_code(exit: Exit, code: int) -> Exit:
    """Return `exit` with its code replaced by `code`. A negative `code` is a signal, as
    in Python's subprocess module."""
    if code < 0:
        return replace(exit, code=None, signal=-code)
    return replace(exit, code=code or 1)
