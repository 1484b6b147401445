"""The end of one rank: its class of failure, the log lines that show it, their
location, and advice."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from corral.domain.attempt import Exit
from corral.domain.diagnosis import RankEnd
from corral.domain.failure_advice import NextStep
from corral.domain.failure_class import FailureKind
from corral.health.error_blocks import message, sentence
from corral.health.error_chains import (
    begins_it,
    chain_of,
    has_line,
    quote_of,
    quoted,
    with_earlier,
)
from corral.health.helper_loss import (
    cut_error,
    is_helper_lost,
    is_lost_connection,
    killed_worker,
    uses_helpers,
)
from corral.health.log_parser import Printed, parted, printed
from corral.health.pattern_form import Pattern
from corral.health.pattern_hits import (
    ENDS_BY_SIGNAL,
    LAUNCHER,
    Hit,
    by_retries,
    by_words,
    hit_of,
    without_losses,
    without_outlived,
)
from corral.health.patterns import MACHINE, pattern_of
from corral.health.peer_evidence import inner_end
from corral.health.raised_errors import Raised
from corral.health.script_commands import earlier_command, is_of_timeout
from corral.health.stack_places import place_in_stacks
from corral.health.traceback_frames import kind_of_place

SHELL_SIGNALS: Final = 128  # a shell answers with this and the signal of what it ran
BYTE: Final = 256  # Python's sys.exit(-9) ends with what is left of it in a byte: 247
KILL: Final = 9
_ABORT, _TERM = 6, 15
# ABRT, ILL, TRAP, BUS, FPE, SEGV, SYS.
_CRASHES: Final = frozenset({4, 5, _ABORT, 7, 8, 11, 31})
_BY_ITSELF: Final = frozenset({4, 5, _ABORT})  # ILL, TRAP: checks that compilers put in
_LEFT_BEHIND: Final = frozenset({_ABORT, 11})
_INT, _PIPE = 2, 13  # PIPE: the reader of its output is gone
_ASKED: Final = frozenset({1, _INT, 3})  # also HUP and QUIT: sent by a terminal
_LIMITS: Final = frozenset({24, 25})  # XCPU, XFSZ
# codes with which programs end that have given a reason
DELIBERATE: Final = range(1, 124)
_CLOSED: Final = NextStep.CLOSED_PIPE
TIMED_OUT: Final = 124  # of the command timeout
# what a shell ends with that could not start it
NOT_STARTED: Final = frozenset({126, 127})
_OF_SHELLS: Final = frozenset(
    {FailureKind.FILES, FailureKind.SYNTAX, FailureKind.USAGE}
)
# memory that Slurm, a runtime or the kernel saw run out
_BY_KERNEL: Final = re.compile(
    r"\boom[-_ ]kill|: task \d{1,9}: Out Of Memory|Out of memory: Killed process",
    re.IGNORECASE,
)
_NEWER_SYNTAX: Final = re.compile(  # of Python 3.8 to 3.14
    r"^(?:match\b.{1,200}:$|case\b.{1,200}:|except ?\*|type \w{1,80}(?:\[.{1,80}\])? = "
    r"|(?:async )?def \w{1,80}\[|class \w{1,80}\[|(?:async )?with \($|.{0,200}[({\[ ]\w{1,80} ?:= )"
    r"|\bf['\"]"
)
_INTERFACE: Final = re.compile(r"\b(\w{1,20}_IFNAME) set by environment to (\S{1,60})")
_ASSERTS: Final = "device-side assert"
_STEPS: Final = {  # advice by the signal, where the log has no error
    4: NextStep.ILLEGAL_INSTRUCTION,
    _ABORT: NextStep.ABORTED,
    7: NextStep.BUS_ERROR,
    8: NextStep.ARITHMETIC,
    11: NextStep.SEGMENTATION,
    _TERM: NextStep.TERMINATED,
    24: NextStep.CPU_TIME,
    25: NextStep.FILE_SIZE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReading:
    """Evidence of how one rank ended. `of_peers`: its end may be a consequence of
    another rank's end. `at`: when the rank ended."""

    end: RankEnd
    kind: FailureKind
    at: float
    quote: str = ""
    place: str = ""
    step: NextStep | None = None
    of_peers: bool = False


def read(end: RankEnd, exit: Exit) -> RankReading:
    """Return the class of a rank's end, with its evidence. If the end of a long log
    shows no error, the last error before the gap in the log is used."""
    earlier, tail = parted(end.tail)
    end = replace(end, tail=tail)
    if earlier and signal_of(exit) in (None, _ABORT):
        end_reading = _read_end(end, exit, with_chatter=False)
        best_reading = (
            end_reading
            if _is_conclusive(end_reading)
            else _read_end(replace(end, tail=earlier), exit)
        )
        if _is_conclusive(best_reading):
            return best_reading
    return _read_end(end, exit)


def last_error(end: RankEnd) -> RankReading | None:
    """Return the error that is the last output of a rank; None if the last output is
    not an error."""
    log = printed(parted(end.tail)[1])
    newest_error = _newest_error(log.raised)
    # more lines may be output
    is_last = newest_error is not None and log.last[-1:] == newest_error.lines
    if (
        end.exit is None
        or newest_error is None
        or newest_error.is_wrapper
        or not is_last
    ):
        return None
    bare = RankReading(end=end, kind=FailureKind.UNKNOWN, at=end.exit.at)
    return _of_errors(bare, log, newest_error, by_words(log, with_chatter=False))


def _is_conclusive(read: RankReading) -> bool:
    return bool(read.quote) and read.kind != FailureKind.UNKNOWN


def _read_end(end: RankEnd, exit: Exit, *, with_chatter: bool = True) -> RankReading:
    """Return the cause by the output, unless the exit says more; with its place where a
    call stack shows it. Chatter counts `with_chatter`."""
    log = without_losses(printed(end.tail))
    log = log if exit.code in NOT_STARTED else without_outlived(log)
    reading = _read_log(end, exit, log, with_chatter=with_chatter)
    if reading.kind == FailureKind.HELPER and (line := killed_worker(log.text)):
        pattern = pattern_of(line)
        kind = pattern.kind if pattern is not None else FailureKind.KILLED
        quote = f"{line}; before it: {reading.quote}"
        reading = replace(reading, kind=kind, quote=quote)
    if reading.kind == FailureKind.INTERFACE and (
        setting := _INTERFACE.search(log.text)
    ):
        quote = f"{reading.quote}; {setting[1]} is set to {setting[2]}"
        reading = replace(reading, quote=quote)
    if reading.place or not reading.quote:
        return reading
    place = place_in_stacks(log.text, reading.quote)
    step = None if place and reading.step == NextStep.NODE else reading.step
    return replace(reading, place=place, step=step)


def _read_log(
    end: RankEnd, exit: Exit, log: Printed, *, with_chatter: bool
) -> RankReading:
    """Return the class and the evidence that the log and the exit show."""
    rank, inner = inner_end(log.text, exit, log.newest)
    is_told = inner is not exit  # by who had started it, in the same log
    end, exit = end if rank is None else replace(end, rank=rank), inner
    by_end, hit = _by_end(exit), by_words(log, with_chatter=with_chatter)
    reading = RankReading(end=end, kind=FailureKind.UNKNOWN, at=exit.at)
    if exit.out_of_memory:
        return replace(reading, kind=FailureKind.HOST_MEMORY)
    if by_end is not None and not _says_more(hit, exit, log, is_told=is_told):
        quote = quoted(_quote_of_signal(log, exit, is_told=is_told))
        location = log.crashed_at if by_end == FailureKind.CRASH else ""
        step = NextStep.NATIVE_CODE if location else _step_of(log, exit, quote)
        if not quote and signal_of(exit) == KILL and log.last_words:
            quote, step = quoted(log.last_words), NextStep.WATCHDOG
        return replace(reading, kind=by_end, quote=quote, place=location, step=step)
    if (
        exit.code in NOT_STARTED
        and not log.raised
        and (hit is None or hit[0].kind in _OF_SHELLS)
    ):
        step = hit[0].step if hit else None
        quote = hit[1] if hit else log.complaint
        return replace(
            reading, kind=FailureKind.COMMAND, quote=quoted(quote), step=step
        )
    newest_error = _newest_error(log.raised)
    is_outlived = hit is None or not (hit[0].of_peers or hit[0].kind in MACHINE)
    if newest_error is None and is_outlived and signal_of(exit) == _PIPE:
        return replace(
            _of_last_lines(reading, log), kind=FailureKind.PROGRAM, step=_CLOSED
        )
    if newest_error is not None and not newest_error.is_wrapper:
        return _with_earlier(_of_errors(reading, log, newest_error, hit), log)
    place = newest_error.place if newest_error is not None else ""
    if hit is not None:
        pattern, line = hit
        reading = _of_pattern(replace(reading, place=place), pattern)
        return _with_earlier(replace(reading, quote=quoted(line)), log)
    if newest_error is not None and is_helper_lost(newest_error, log.text):
        quote = quoted(message(newest_error.lines))
        return replace(reading, kind=FailureKind.HELPER, quote=quote, place=place)
    if log.complaint:
        return _of_complaint(replace(reading, place=place), log)
    if newest_error is None and (dump := cut_error(log.text)):
        return _of_cut_error(reading, dump, log)
    if newest_error is not None:
        quote = quoted(message(newest_error.lines))
        if newest_error.step == NextStep.MPI_ABORT and (
            preceding_line := log.line_before(newest_error.lines[0])
        ):
            quote = f"{quoted(preceding_line)}; then: {quote}"
        return replace(
            reading, kind=FailureKind.PROGRAM, quote=quote, step=newest_error.step
        )
    return _read_exit_code(reading, exit, log)


def _of_complaint(read: RankReading, log: Printed) -> RankReading:
    """Return the reading of a log whose last line with the shape of an error is all
    that it shows."""
    if LAUNCHER in log.complaint:
        return replace(read, place="", step=NextStep.WORKER_LOG)
    quote = quoted(log.complaint)
    return _with_earlier(replace(read, kind=FailureKind.PROGRAM, quote=quote), log)


def _of_cut_error(read: RankReading, dump: str, log: Printed) -> RankReading:
    """Return the reading of an error that Python could not print to its end."""
    if is_lost_connection(dump):
        kind = FailureKind.HELPER if uses_helpers(log.text) else FailureKind.UNKNOWN
        return replace(read, kind=kind, quote=dump, step=NextStep.CUT_TRACEBACK)
    pattern = pattern_of(dump)
    reading = replace(read, kind=FailureKind.PROGRAM, quote=dump)
    return reading if pattern is None else _of_pattern(reading, pattern)


def _read_exit_code(reading: RankReading, exit: Exit, log: Printed) -> RankReading:
    """Return the reading with the cause that the exit code and the last lines show."""
    if exit.code in DELIBERATE and log.parting:
        return replace(reading, kind=FailureKind.PROGRAM, quote=quoted(log.parting))
    if exit.code == TIMED_OUT:
        return replace(reading, kind=FailureKind.KILLED, step=NextStep.TIMED_OUT)
    if exit.code is None:
        return reading
    return _of_last_lines(reading, log)


def _of_last_lines(read: RankReading, log: Printed) -> RankReading:
    if not log.ending:
        step = NextStep.WORKER_LOG if log.text.strip() else NextStep.SILENT
        return replace(read, step=step)
    quote = f"last output: {quoted(log.ending)}"
    return replace(read, quote=quote, step=NextStep.LAST_LINES)


def _of_errors(
    read: RankReading, log: Printed, newest: Raised, said: Hit | None
) -> RankReading:
    """Return the reading, classified by the program's newest error and the first error
    of its chain."""
    if said is None and (retried := by_retries(log, message(newest.lines))) is not None:
        quote = f"{quoted(retried[1])}; it led to: {quoted(message(newest.lines))}"
        return replace(_of_pattern(read, retried[0]), quote=quote, place=newest.place)
    line = said[1] if said is not None else ""
    chain = chain_of(log.raised, newest, line)
    # Printed separately, or of an earlier chain.
    if said is not None and not has_line(chain, line):
        quote = log.assertion if _ASSERTS in line and log.assertion else line
        source_location = chain.place(chain.last)
        return replace(
            _of_pattern(read, said[0]), quote=quoted(quote), place=source_location
        )
    root, last_hit = hit_of(chain.root, log.text), hit_of(chain.last, log.text)
    kinds = [hit[0].kind if hit is not None else None for hit in (root, last_hit)]
    root_first = chain.root is not chain.last and begins_it(chain, kinds[0], kinds[1])
    first_error = chain.root if root_first else chain.last
    is_roots = root_first and root is not None and not root[0].of_peers
    if is_roots and root is not None and (said is None or root[0].kind != said[0].kind):
        said = root
    quote = quote_of(chain, root_first=root_first, line=line)
    if chain.root is chain.last and chain.last.step is None:
        quote = with_earlier(quote, log.raised, chain)
    if said is None and chain.root is chain.last and (cause := log.listed_cause):
        quote = f"{cause}; it led to: {quote}"
    if said is None:
        kind = _by_place(first_error) or FailureKind.PROGRAM
        # other tools print so
        is_node = first_error.step != NextStep.NODE or "\n    at " in log.text
        step = first_error.step if is_node else None
        return replace(
            read, kind=kind, quote=quote, step=step, place=chain.place(first_error)
        )
    if _ASSERTS in line and log.assertion:
        quote = quoted(log.assertion)
    return replace(
        _of_pattern(read, said[0]), quote=quote, place=chain.place(first_error)
    )


def _of_pattern(read: RankReading, pattern: Pattern) -> RankReading:
    of_peers = pattern.of_peers and pattern.kind != FailureKind.HELPER
    return replace(read, kind=pattern.kind, step=pattern.step, of_peers=of_peers)


def _of_parser(read: RankReading, log: Printed) -> RankReading:
    """Return the reading of an error of Python's parser, with the error's location. The
    source line is added if it uses syntax of a newer Python."""
    source_location, source = log.unread
    if not source_location:
        return read
    read = replace(read, place=source_location)
    if _NEWER_SYNTAX.search(source) is None:
        return read
    return replace(read, quote=f"{read.quote}: {source}", step=NextStep.OTHER_PYTHON)


def _with_earlier(read: RankReading, log: Printed) -> RankReading:
    """Return the reading. If an earlier command failed and the final failure is a
    consequence of that, return the reading with the earlier failure's class."""
    if read.kind == FailureKind.SYNTAX and read.step is None:
        return _of_parser(read, log)
    earlier = (
        earlier_command(read.kind, log.text, read.quote) if read.step is None else None
    )
    if earlier is None or earlier.line in read.quote:
        return read
    return replace(
        read,
        kind=earlier.kind,
        quote=f"{quoted(earlier.line)}; then: {read.quote}",
        step=NextStep.EARLIER_COMMAND if earlier.is_command else None,
    )


def _step_of(log: Printed, exit: Exit, quote: str) -> NextStep | None:
    if is_of_timeout(quote):
        return NextStep.TIMED_OUT
    newest_error = _newest_error(log.raised)
    signal = signal_of(exit)
    of_language = (
        newest_error.step if newest_error is not None and signal in _BY_ITSELF else None
    )
    return of_language or _STEPS.get(signal or 0)


def _quote_of_signal(log: Printed, exit: Exit, *, is_told: bool) -> str:
    """Return the line that explains why a signal ended the process.

    It is the line about a crash or a kill; if the program aborted itself, any error
    counts. Return "" if the last lines are ordinary output. `is_told`: the log itself
    reports this end.
    """
    newest_error, aborts = _newest_error(log.raised), signal_of(exit) in _BY_ITSELF
    if (
        aborts
        and newest_error is not None
        and (newest_error.step is not None or log.ends_raising)
    ):
        return message(newest_error.lines)
    if aborts and log.assertion:
        return log.assertion
    for line_index, line in enumerate(log.last):
        pattern = pattern_of(line)
        if pattern is not None and pattern.kind in ENDS_BY_SIGNAL:
            return sentence(log.last, line_index)
    if aborts:
        return log.complaint
    if is_told and (signal_line := log.told_by_launcher):
        return signal_line
    return sentence(log.raised[-1].lines) if is_told and log.raised else ""


def _newest_error(raised: Sequence[Raised]) -> Raised | None:
    """Return the newest error that does not only report another process's failure; if
    all do, the newest of all. Return None without errors."""
    raiseds = [
        raised_error for raised_error in raised if not raised_error.is_wrapper
    ] or list(raised)
    return raiseds[-1] if raiseds else None


def _by_place(newest: Raised) -> FailureKind | None:
    """Return the class of failure by the place in a library that raised the newest
    error; None if the place shows none."""
    kind = kind_of_place(newest.frame)
    return kind if kind == FailureKind.VARIABLE or not newest.is_own else None


def _says_more(said: Hit | None, exit: Exit, log: Printed, *, is_told: bool) -> bool:
    """Return whether the log of a process that a signal ended explains more than the
    signal does.

    A process that aborts itself prints why. A process that was asked to stop may have
    lost its peers. No process can report that it was killed, but one that had just
    failed may have been killed because it did not exit. If another process reports the
    end (`is_told`), the log may concern other ranks, and those ranks may only report
    that they lost the process.
    """
    signal = signal_of(exit)
    if is_told and (said is None or said[0].kind == FailureKind.PEER):
        return False
    if (
        signal in _LEFT_BEHIND
        and log.ends_caught
        and (said is None or log.ends_by_threads)
    ):
        # a thread that still ran, or a destructor, fails while Python shuts down
        return True
    if (
        signal in (KILL, _TERM)
        and log.ends_raising
        and (said is None or not said[0].of_peers)
    ):
        return True
    if said is not None and signal == KILL:
        return _BY_KERNEL.search(said[1]) is not None
    if said is None:
        return False
    pattern, _ = said
    if signal == _ABORT and pattern.kind == FailureKind.CRASH:
        return False
    if signal in (_ABORT, _TERM):
        return True
    return pattern.kind in MACHINE and not pattern.of_peers


def signal_of(exit: Exit) -> int | None:
    if exit.signal is not None or exit.code is None or exit.code <= SHELL_SIGNALS:
        return exit.signal
    negative = BYTE - exit.code
    return (
        negative if negative in _CRASHES | {KILL, _TERM} else exit.code - SHELL_SIGNALS
    )


def _by_end(exit: Exit) -> FailureKind | None:
    """Return the class that the exit alone, or a shell's report of it, shows; None if
    it shows none."""
    signal = signal_of(exit)
    if signal in _CRASHES:
        return FailureKind.CRASH
    if signal in _LIMITS:
        return FailureKind.LIMITS
    if signal in (KILL, _TERM):
        return FailureKind.KILLED
    if signal == _INT or exit.signal in _ASKED:
        return FailureKind.INTERRUPTED
    return FailureKind.KILLED if exit.signal not in (None, _PIPE) else None
