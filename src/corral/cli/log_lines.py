"""Assembly of the ranks' pieces of output into whole lines, each marked with its rank."""

from collections import defaultdict
from typing import IO, TYPE_CHECKING, NamedTuple

from corral.cli.printing import note
from corral.cli.terminal_text import TerminalText
from corral.domain.time_point import moment_text

if TYPE_CHECKING:
    from corral.wire import api


class _Begun(NamedTuple):
    """A line of a rank's output that is not complete yet: its attempt, its text, and
    the time at which it began."""

    attempt: int | None
    text: str = ""
    at: float | None = None


class LogLinePrinter:
    """Printer of log lines with a prefix.

    The prefix is the name of the job, if there are several jobs, and the number of the
    rank, if `label` is set. With `times`, the arrival time of the line comes first. On
    a terminal, control sequences are removed unless `raw` is set. The start of a later
    attempt is noted on standard error, so the lines themselves stay as they were
    printed.
    """

    def __init__(
        self,
        out: IO[str],
        *,
        label: bool,
        job: str = "",
        raw: bool = False,
        times: bool = False,
    ) -> None:
        self._out = out
        self._label = label
        self._job = job
        self._cleaned = out.isatty() and not raw
        # by rank
        self._texts: defaultdict[int, TerminalText] = defaultdict(TerminalText)
        self._attempt: int | None = None  # the newest that has printed
        self._times = times
        self._rest: dict[int, _Begun] = {}  # a line that a rank's attempt began

    def write(self, piece: "api.LogLines") -> None:
        if piece.rank is None:
            return
        self._announce_attempt(piece.attempt)
        data = (
            self._texts[piece.rank].clean(piece.data) if self._cleaned else piece.data
        )
        if not self._label and not self._job and not self._times:
            self._out.write(data)
            self._out.flush()
            return
        begun = self._rest.get(piece.rank, _Begun(piece.attempt))
        if begun.attempt != piece.attempt and begun.text:
            # its attempt ended inside a line
            begun = begun._replace(text=begun.text + "\n")
        *lines, rest = (begun.text + data).split("\n")
        times = _times_of(begun, piece, len(lines) + 1)
        self._rest[piece.rank] = _Begun(piece.attempt, rest, times[len(lines)])
        for line, line_time in zip(lines, times, strict=False):
            self._out.write(f"{self._line_prefix(piece.rank, line_time)}{line}\n")
        self._out.flush()

    def _announce_attempt(self, attempt: int | None) -> None:
        """Print a note if this is a later attempt than before."""
        if (
            attempt is not None
            and self._attempt is not None
            and attempt > self._attempt
        ):
            of = f" of {self._job}" if self._job else ""
            note(f"attempt {attempt}{of} begins")
        if attempt is not None:
            self._attempt = max(attempt, self._attempt or attempt)

    def finish(self) -> None:
        for rank, begun in sorted(self._rest.items()):
            if begun.text:
                self._out.write(f"{self._line_prefix(rank, begun.at)}{begun.text}\n")
        self._out.flush()

    def _line_prefix(self, rank: int, at: float | None) -> str:
        """Return the prefix of a line, followed by a blank."""
        tag_words = [self._job] if self._job else []
        tag_words += [str(rank)] if self._label else []
        tag = f"[{' '.join(tag_words)}] " if tag_words else ""
        if not self._times:
            return tag
        moment = "time unknown" if at is None else moment_text(at)
        return f"{moment:<23}  {tag}"


def _times_of(begun: _Begun, piece: "api.LogLines", count: int) -> list[float | None]:
    """Return the arrival times of the `count` lines that this piece of output
    completes.

    A line that began in an earlier piece has the time at which it began; the others
    have the times of the piece.
    """
    stamp_times = piece.times or [None] * (piece.data.count("\n") + 1)
    if begun.text and count == len(stamp_times):
        return [begun.at, *stamp_times[1:]]
    return [*[begun.at] * (count - len(stamp_times)), *stamp_times]
