"""Ranks' pieces as whole lines, each with whose it is."""

from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from corral.wire import api


class Lines:
    """Puts before each line its job, where there are several, and its rank, where `label`."""

    def __init__(self, out: IO[str], *, label: bool, job: str = "") -> None:
        self._out = out
        self._label = label
        self._job = job
        self._rest: dict[int, tuple[int | None, str]] = {}  # a line that a rank's attempt began

    def write(self, piece: "api.LogLines") -> None:
        if piece.rank is None:
            return
        if not self._label and not self._job:
            self._out.write(piece.data)
            self._out.flush()
            return
        attempt, begun = self._rest.get(piece.rank, (piece.attempt, ""))
        if attempt != piece.attempt and begun:
            begun += "\n"  # its attempt has ended in the middle of a line
        *lines, rest = (begun + piece.data).split("\n")
        self._rest[piece.rank] = (piece.attempt, rest)
        tag = self._tag(piece.rank)
        self._out.write("".join(f"{tag} {line}\n" for line in lines))
        self._out.flush()

    def finish(self) -> None:
        for rank, (_, rest) in sorted(self._rest.items()):
            if rest:
                self._out.write(f"{self._tag(rank)} {rest}\n")
        self._out.flush()

    def _tag(self, rank: int) -> str:
        words = [self._job] if self._job else []
        words += [str(rank)] if self._label else []
        return f"[{' '.join(words)}]"
