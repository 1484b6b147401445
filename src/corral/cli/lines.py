"""Ranks' pieces as whole lines, each with whose it is."""

from collections import defaultdict
from typing import IO, TYPE_CHECKING

from corral.cli.output import note
from corral.cli.terminal_text import TerminalText

if TYPE_CHECKING:
    from corral.wire import api


class Lines:
    """Puts before each line its job, where there are several, and its rank, where `label`. On a
    terminal what could command it is left out, unless `raw`. Where a later attempt begins is noted
    beside it, so that the lines themselves stay as they were printed."""

    def __init__(self, out: IO[str], *, label: bool, job: str = "", raw: bool = False) -> None:
        self._out = out
        self._label = label
        self._job = job
        self._cleaned = out.isatty() and not raw
        self._texts: defaultdict[int, TerminalText] = defaultdict(TerminalText)  # by rank
        self._attempt: int | None = None  # the newest that has printed
        self._rest: dict[int, tuple[int | None, str]] = {}  # a line that a rank's attempt began

    def write(self, piece: "api.LogLines") -> None:
        if piece.rank is None:
            return
        self._mark(piece.attempt)
        data = self._texts[piece.rank].clean(piece.data) if self._cleaned else piece.data
        if not self._label and not self._job:
            self._out.write(data)
            self._out.flush()
            return
        attempt, begun = self._rest.get(piece.rank, (piece.attempt, ""))
        if attempt != piece.attempt and begun:
            begun += "\n"  # its attempt has ended in the middle of a line
        *lines, rest = (begun + data).split("\n")
        self._rest[piece.rank] = (piece.attempt, rest)
        tag = self._tag(piece.rank)
        self._out.write("".join(f"{tag} {line}\n" for line in lines))
        self._out.flush()

    def _mark(self, attempt: int | None) -> None:
        """Note that a later attempt begins."""
        if attempt is not None and self._attempt is not None and attempt > self._attempt:
            of = f" of {self._job}" if self._job else ""
            note(f"attempt {attempt}{of} begins")
        if attempt is not None:
            self._attempt = max(attempt, self._attempt or attempt)

    def finish(self) -> None:
        for rank, (_, rest) in sorted(self._rest.items()):
            if rest:
                self._out.write(f"{self._tag(rank)} {rest}\n")
        self._out.flush()

    def _tag(self, rank: int) -> str:
        words = [self._job] if self._job else []
        words += [str(rank)] if self._label else []
        return f"[{' '.join(words)}]"
