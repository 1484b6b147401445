"""Of what ranks print last and how they end: what failed, and which rank began.

A rank that lost its peers tells of the peers: where another rank of the gang has a cause of its
own, was named by those who waited, or was still silent when they gave up, that one is to blame.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from corral.domain.attempt import Exit
from corral.domain.diagnosis import RankEnd
from corral.domain.failure import Failure, FailureKind
from corral.domain.next_steps import NextStep
from corral.health.blocks import is_report_of_shell, message, sentence
from corral.health.chains import begins_it, chain_of, has_line, quote_of, quoted
from corral.health.commands import earlier_command, is_of_timeout
from corral.health.frames import kind_of_place
from corral.health.patterns import (
    CUT_OFF,
    MACHINE,
    PATTERNS,
    pattern_of,
)
from corral.health.printed import Printed, parted, printed
from corral.health.raised import Raised
from corral.health.waits import awaited, behind, inner_end, stopped_by_launcher, streams
from corral.health.words import Pattern

SHELL_SIGNALS: Final = 128  # a shell answers with this and the signal of what it ran
SOONEST_KILL_SECONDS: Final = 0.5  # after the first failure; graces are longer
EARLIER_SECONDS: Final = 0.001
TAIL_CHARACTERS: Final = 16_384  # of a rank's log; agents send a quarter of that
QUOTE_CHARACTERS: Final = 700  # two lines of a log, and how they belong together
BYTE: Final = 256  # Python's sys.exit(-9) ends with what is left of it in a byte: 247
_ABORT, _KILL, _TERM = 6, 9, 15
_CRASHES: Final = frozenset({4, 5, _ABORT, 7, 8, 11, 31})  # ILL, TRAP, BUS, FPE, SEGV, SYS beside
_LEFT_BEHIND: Final = frozenset({_ABORT, 11})
_INT, _PIPE = 2, 13  # PIPE: nobody read any more what it wrote
_ASKED: Final = frozenset({1, _INT, 3})  # HUP and QUIT beside it: what a terminal sends
_LIMITS: Final = frozenset({24, 25})  # XCPU, XFSZ
_TIMED_OUT: Final = re.compile(r"\btimed? ?out|\bTimeout|ETIMEDOUT", re.IGNORECASE)
DELIBERATE: Final = range(1, 124)  # codes with which programs end that have given a reason
TIMED_OUT: Final = 124  # of the command timeout
NOT_STARTED: Final = frozenset({126, 127})  # what a shell ends with that could not start it
_OF_SHELLS: Final = frozenset({FailureKind.FILES, FailureKind.SYNTAX, FailureKind.USAGE})
_WAITED: Final = frozenset({FailureKind.HANG, FailureKind.RENDEZVOUS})
_ABOUT_THE_GANG: Final = _WAITED | {FailureKind.PEER}
_BY_KERNEL: Final = re.compile(  # memory that Slurm, a runtime or the kernel saw run out
    r"\boom[-_ ]kill|: task \d{1,9}: Out Of Memory|Out of memory: Killed process", re.IGNORECASE
)
_INSTALLED: Final = frozenset({FailureKind.MODULE, FailureKind.PACKAGE})
_ASSERTS: Final = "device-side assert"
_STEPS: Final = {  # advice by the signal, where the log has no error
    4: NextStep.ILLEGAL_INSTRUCTION,
    _ABORT: NextStep.ABORTED,
    7: NextStep.BUS_ERROR,
    8: NextStep.ARITHMETIC,
    11: NextStep.SEGMENTATION,
    _TERM: NextStep.TERMINATED,
}
_ENDS_BY_SIGNAL: Final = frozenset({FailureKind.CRASH, FailureKind.KILLED})

Hit = tuple[Pattern, str]  # and the line that has its words, with what continues it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What one rank's end shows. `of_peers`: it may be the consequence of another's; `at`: when."""

    end: RankEnd
    kind: FailureKind
    at: float
    quote: str = ""
    place: str = ""
    step: NextStep | None = None
    of_peers: bool = False


def failure_of(ends: Sequence[RankEnd]) -> Failure | None:
    """What the ranks of a gang failed of; None where none of them failed."""
    short = [replace(end, tail=end.tail[-TAIL_CHARACTERS:]) for end in ends]
    ends = [inner for end in short for inner in _unfolded(end)]
    failed = [_read(end, end.exit) for end in ends if end.exit and not end.exit.clean]
    if not failed:
        return None
    first_at = min(one.at for one in failed)
    stopped = [one for one in failed if _was_stopped(one, first_at)]
    told = [one for one in failed if one not in stopped]
    own = [one for one in told if not one.of_peers]
    if own:
        first = min(own, key=lambda one: (one.kind == FailureKind.UNKNOWN, one.at, one.end.rank))
        if first.kind == FailureKind.NETWORK and _TIMED_OUT.search(first.quote):
            first = _waited_for(own, stopped) or first
        return _failure(first, alike=sum(one.kind == first.kind for one in own))
    return _of_the_gang(ends, told, stopped)


def _unfolded(end: RankEnd) -> list[RankEnd]:
    """The workers of a launcher that share its log, each as the rank that it names; the one that
    the launcher saw fail first a little before the others."""
    apart = streams(end.tail)
    if end.exit is None or end.exit.clean or end.exit.out_of_memory or len(apart) < 2:
        return [end]
    root, how = inner_end(end.tail, end.exit)
    if root is not None:
        apart.setdefault(root, "")
    return [
        replace(end, rank=rank, tail=tail, exit=replace(how, at=how.at - EARLIER_SECONDS))
        if rank == root
        else replace(end, rank=rank, tail=tail)
        for rank, tail in sorted(apart.items())
    ]


def _was_stopped(one: _Read, first_at: float) -> bool:
    """By us, for another's failure: with TERM, and with KILL no sooner than its grace is over."""
    if one.kind != FailureKind.KILLED or one.end.exit is None:
        return False
    killed = _signal_of(one.end.exit) == _KILL
    return one.at > first_at + (SOONEST_KILL_SECONDS if killed else 0.0)


def _waited_for(own: Sequence[_Read], stopped: Sequence[_Read]) -> _Read | None:
    """Of ranks that had to be killed after another gave up waiting: one that had raised an error
    and would not leave, else one that did nothing any more."""
    raised = [one for one in own if _was_frozen(one)]
    frozen = [replace(one, kind=FailureKind.HANG) for one in stopped if _was_frozen(one)]
    return next(iter(raised + frozen), None)


def _was_frozen(one: _Read) -> bool:
    """It did not even leave when it was told to: of those that did, none was in the others' way."""
    return one.end.exit is not None and _signal_of(one.end.exit) == _KILL


def _of_the_gang(
    ends: Sequence[RankEnd], told: Sequence[_Read], stopped: Sequence[_Read]
) -> Failure:
    """Where no rank has a cause of its own: who did not come, or what is between them."""
    order = sorted(told, key=lambda one: (one.at, one.end.rank))
    if (wire := next((one for one in order if one.kind not in _ABOUT_THE_GANG), None)) is not None:
        return _failure(wire, alike=sum(one.kind == wire.kind for one in told))
    first = next((one for one in order if one.kind in _WAITED), order[0])
    waited = first.kind in _WAITED
    idle = [one.end for one in stopped if _was_frozen(one)]
    idle = idle or ([one.end for one in stopped] if waited else [])
    quiet = [end for end in ends if end.exit is None or end.exit.clean] or idle
    missing, alike = _missing(ends, told, quiet), max(1, len(quiet))
    if missing is None:
        alone = len(ends) == 1 and CUT_OFF.search(order[0].quote)  # then it was no peer of the gang
        kind = FailureKind.NETWORK if alone else order[0].kind
        step = NextStep.OTHER_RANKS if kind == FailureKind.HANG else order[0].step
        return _failure(replace(order[0], kind=kind, step=step), alike=len(told))
    kind = first.kind if waited else FailureKind.HANG
    return _failure(replace(first, end=missing, kind=kind, place="", step=None), alike=alike)


def _missing(
    ends: Sequence[RankEnd], told: Sequence[_Read], quiet: Sequence[RankEnd]
) -> RankEnd | None:
    """Whom the others name; else who was silent to the end; else who is behind in its work."""
    of = {end.rank: end for end in ends}
    named = [rank for one in told for rank in awaited(one.end.tail) if rank != one.end.rank]
    for rank in named:
        if rank in of and rank not in {one.end.rank for one in told}:
            return of[rank]
    if quiet:
        return min(quiet, key=lambda end: end.rank)
    if len(told) == 1 and len(stopped := stopped_by_launcher(told[0].end.tail)) == 1:
        return of.get(stopped[0], replace(told[0].end, rank=stopped[0]))
    last = behind({one.end.rank: one.end.tail for one in told})
    return of.get(last) if last is not None else None


def _failure(one: _Read, *, alike: int) -> Failure:
    end = one.end
    return Failure(
        kind=one.kind,
        culprit=f"rank {end.rank} on {end.node}",
        node=end.node,
        rank=end.rank,
        quote=one.quote[:QUOTE_CHARACTERS],
        place=one.place,
        step=one.step,
        alike=alike,
    )


def _read(end: RankEnd, exit: Exit) -> _Read:
    """Return how it reads; by the last error of a long log where its end shows none."""
    earlier, tail = parted(end.tail)
    end = replace(end, tail=tail)
    if earlier and _signal_of(exit) in (None, _ABORT):
        read = _read_end(end, exit, with_chatter=False)
        before = read if _tells(read) else _read_end(replace(end, tail=earlier), exit)
        if _tells(before):
            return before
    return _read_end(end, exit)


def _tells(read: _Read) -> bool:
    return bool(read.quote) and read.kind != FailureKind.UNKNOWN


def _read_end(end: RankEnd, exit: Exit, *, with_chatter: bool = True) -> _Read:
    """By what it says, where its end alone does not say more."""
    log = printed(end.tail)
    rank, inner = inner_end(log.text, exit, log.newest)
    is_told = inner is not exit  # by who had started it, in the same log
    end, exit = end if rank is None else replace(end, rank=rank), inner
    by_end, said = _by_end(exit), _by_words(log, with_chatter=with_chatter)
    read = _Read(end=end, kind=FailureKind.UNKNOWN, at=exit.at)
    if exit.out_of_memory:
        return replace(read, kind=FailureKind.HOST_MEMORY)
    if by_end is not None and not _says_more(said, exit, log, is_told=is_told):
        quote = quoted(_quote_of_signal(log, exit, is_told=is_told))
        place = log.crashed_at if by_end == FailureKind.CRASH else ""
        step = NextStep.NATIVE_CODE if place else _step_of(log, exit, quote)
        return replace(read, kind=by_end, quote=quote, place=place, step=step)
    if exit.code in NOT_STARTED and not log.raised and (said is None or said[0].kind in _OF_SHELLS):
        step = said[0].step if said else None
        quote = said[1] if said else log.complaint
        return replace(read, kind=FailureKind.COMMAND, quote=quoted(quote), step=step)
    newest = _newest(log.raised)
    if newest is not None and not newest.is_wrapper:
        return _with_earlier(_of_errors(read, log, newest, said), log)
    if said is not None:
        pattern, line = said
        place = newest.place if newest is not None else ""
        read = replace(_of_pattern(read, pattern), quote=quoted(line), place=place)
        return _with_earlier(read, log)
    if log.complaint:
        return replace(read, kind=FailureKind.PROGRAM, quote=quoted(log.complaint))
    if newest is not None:
        quote = quoted(message(newest.lines))
        if newest.step == NextStep.MPI_ABORT and (before := log.line_before(newest.lines[0])):
            quote = f"{quoted(before)}; then: {quote}"
        return replace(read, kind=FailureKind.PROGRAM, quote=quote, step=newest.step)
    if exit.code in DELIBERATE and log.parting:
        return replace(read, kind=FailureKind.PROGRAM, quote=quoted(log.parting))
    if exit.code == TIMED_OUT:
        return replace(read, kind=FailureKind.KILLED, step=NextStep.TIMED_OUT)
    if exit.code is None:
        return read
    if not log.ending:
        return replace(read, step=NextStep.SILENT)
    quote = f"the last it printed: {quoted(log.ending)}"
    return replace(read, quote=quote, step=NextStep.LAST_LINES)


def _of_errors(read: _Read, log: Printed, newest: Raised, said: Hit | None) -> _Read:
    """Return how the newest error of a program reads, with the one that it began with."""
    line = said[1] if said is not None else ""
    chain = chain_of(log.raised, newest, line)
    if said is not None and not has_line(chain, line):  # printed beside, or of an earlier chain
        quote = log.assertion if _ASSERTS in line and log.assertion else line
        place = chain.place(chain.last)
        return replace(_of_pattern(read, said[0]), quote=quoted(quote), place=place)
    root, last = _hit_of(chain.root), _hit_of(chain.last)
    kinds = [hit[0].kind if hit is not None else None for hit in (root, last)]
    root_first = chain.root is not chain.last and begins_it(chain, kinds[0], kinds[1])
    first = chain.root if root_first else chain.last
    is_roots = root_first and root is not None and not root[0].of_peers
    if is_roots and root is not None and (said is None or root[0].kind != said[0].kind):
        said = root
    quote = quote_of(chain, root_first=root_first, line=line)
    if said is None:
        kind = _by_place(first) or FailureKind.PROGRAM
        is_node = first.step != NextStep.NODE or "\n    at " in log.text  # other tools print so
        step = first.step if is_node else None
        return replace(read, kind=kind, quote=quote, step=step, place=chain.place(first))
    if _ASSERTS in line and log.assertion:
        quote = quoted(log.assertion)
    return replace(_of_pattern(read, said[0]), quote=quote, place=chain.place(first))


def _of_pattern(read: _Read, pattern: Pattern) -> _Read:
    return replace(read, kind=pattern.kind, step=pattern.step, of_peers=pattern.of_peers)


def _with_earlier(read: _Read, log: Printed) -> _Read:
    """Return it with an earlier command that failed, where what it failed of is its consequence."""
    earlier = earlier_command(read.kind, log.text) if read.step is None else None
    if earlier is None or earlier.line in read.quote:
        return read
    return replace(
        read,
        kind=earlier.kind,
        quote=f"{quoted(earlier.line)}; then: {read.quote}",
        step=NextStep.EARLIER_COMMAND,
    )


def _step_of(log: Printed, exit: Exit, quote: str) -> NextStep | None:
    if is_of_timeout(quote):
        return NextStep.TIMED_OUT
    newest = _newest(log.raised)
    signal = _signal_of(exit)
    of_language = newest.step if newest is not None and signal == _ABORT else None
    return of_language or _STEPS.get(signal or 0)


def _quote_of_signal(log: Printed, exit: Exit, *, is_told: bool) -> str:
    """Return the line that tells of a signal: of a crash or a kill, and of one that aborts itself
    any error; "" where the last lines are of its work."""
    newest, aborts = _newest(log.raised), _signal_of(exit) == _ABORT
    if aborts and newest is not None and (newest.step is not None or log.ends_raising):
        return message(newest.lines)
    if aborts and log.assertion:
        return log.assertion
    for at, line in enumerate(log.last):
        pattern = pattern_of(line)
        if pattern is not None and pattern.kind in _ENDS_BY_SIGNAL:
            return sentence(log.last, at)
    if aborts:
        return log.complaint
    return sentence(log.raised[-1].lines) if is_told and log.raised else ""


def _newest(raised: Sequence[Raised]) -> Raised | None:
    """Return the newest error that is no wrapper of another; else the newest wrapper."""
    own = [one for one in raised if not one.is_wrapper] or list(raised)
    return own[-1] if own else None


def _by_place(newest: Raised) -> FailureKind | None:
    """What a library was doing that raised the newest error."""
    kind = kind_of_place(newest.frame)
    return kind if kind == FailureKind.VARIABLE or not newest.is_own else None


def _says_more(said: Hit | None, exit: Exit, log: Printed, *, is_told: bool) -> bool:
    """Whether the words are believed where a signal ended it: one that aborts itself tells why, and
    one that was told to stop may have lost its peers. Nobody tells of having been killed, but one
    that had just failed may have been killed for not leaving. Where another process tells how it
    ended, the words are of others too: who lost it says so."""
    signal = _signal_of(exit)
    if is_told and (said is None or said[0].kind == FailureKind.PEER):
        return False
    if signal in _LEFT_BEHIND and log.ends_caught and (said is None or log.ends_by_threads):
        return True  # a thread that still ran, or a destructor, fails while Python shuts down
    if signal in (_KILL, _TERM) and log.ends_raising and (said is None or not said[0].of_peers):
        return True
    if said is not None and signal == _KILL:
        return _BY_KERNEL.search(said[1]) is not None
    if said is None:
        return False
    pattern, _ = said
    if signal == _ABORT and pattern.kind == FailureKind.CRASH and log.assertion:
        return False
    if signal in (_ABORT, _TERM):
        return True
    return pattern.kind in MACHINE and not pattern.of_peers


def _signal_of(exit: Exit) -> int | None:
    if exit.signal is not None or exit.code is None or exit.code <= SHELL_SIGNALS:
        return exit.signal
    negative = BYTE - exit.code
    return negative if negative in _CRASHES | {_KILL, _TERM} else exit.code - SHELL_SIGNALS


def _by_end(exit: Exit) -> FailureKind | None:
    """What the end alone tells, also where a shell stands between."""
    signal = _signal_of(exit)
    if signal in _CRASHES:
        return FailureKind.CRASH
    if signal in _LIMITS:
        return FailureKind.LIMITS
    if signal in (_KILL, _TERM):
        return FailureKind.KILLED
    if signal == _INT or exit.signal in _ASKED:
        return FailureKind.INTERRUPTED
    return FailureKind.KILLED if exit.signal not in (None, _PIPE) else None


def _by_words(log: Printed, *, with_chatter: bool) -> Hit | None:
    """Errors that were raised come before what else was printed, the newest first that is no
    consequence. Of that else, only what is wrong with the machine where an error was raised, and
    nothing where that is the program's own mistake: programs warn of much that ends them not."""
    raised = [one for one in log.raised if not one.is_wrapper]
    peers: list[Hit] = []
    for _, errors in groupby(reversed(raised), key=lambda one: one.chain):
        chain = list(errors)
        hits = [hit for one in chain if (hit := _hit_of(one)) is not None]
        if (own := next((hit for hit in hits if not hit[0].of_peers), None)) is not None:
            return own
        if not hits and not peers and chain[0].is_own:
            return None
        peers += hits
    if raised:
        is_python = raised[-1].step is None  # elsewhere an error may be explained below it
        beside = reversed(_hits(log.last, machine_only=is_python))
        return _best([*(hit for hit in beside if hit[0].kind not in _ENDS_BY_SIGNAL), *peers])
    found = _best(reversed(_hits(log.last)))
    if found is None and not log.is_stated:
        found = _best(_hits(log.warnings))
    retried = _best(_hits(log.chatter)) if with_chatter else None
    if found is None:
        return None if log.complaint else retried
    is_consequence = found[0].kind in _INSTALLED  # an installer cannot reach its index
    if is_consequence and retried is not None and retried[0].kind == FailureKind.NETWORK:
        return retried
    return found


def _hit_of(one: Raised) -> Hit | None:
    """Return the class of an error by its message; of the program's own by the first line."""
    hit = _best(_hits(one.lines[:1] if one.is_own else one.lines))
    if hit is not None and hit[0].kind in _ENDS_BY_SIGNAL:
        return hit[0], sentence(one.lines)  # a later line only repeats how it ended
    return hit


def _hits(lines: Sequence[str], *, machine_only: bool = False) -> list[Hit]:
    found = ((pattern_of(line, machine_only=machine_only), at) for at, line in enumerate(lines))
    return [(pattern, sentence(lines, at)) for pattern, at in found if pattern is not None]


def _best(hits: Iterable[Hit]) -> Hit | None:
    """The most specific that is no consequence; else the most specific."""
    return min(hits, key=_rank_of_hit, default=None)


def _rank_of_hit(hit: Hit) -> tuple[bool, int, bool]:
    pattern, line = hit
    return pattern.of_peers, PATTERNS.index(pattern), is_report_of_shell(line)
