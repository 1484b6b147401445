"""The line between a store and its server of PostgreSQL, which tests cut, freeze, or
let lose the answer to a commit that the server has done."""

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

SOCKET = ".s.PGSQL.5432"
WRITES = b"FOR UPDATE"  # of every connection that writes, first of all
COMMIT = b"COMMIT\0"
PIECE_BYTES = 65_536


class Talk:
    """One connection, with a thread for each way."""

    def __init__(self, line: "Line", near: socket.socket, far: socket.socket) -> None:
        self.line, self.near, self.far = line, near, far
        self.writes = False
        self.doomed = False  # its next answer is lost, and it with that
        self._ways = [threading.Thread(target=way) for way in (self._ask, self._answer)]
        for way in self._ways:
            way.start()

    def close(self) -> None:
        self.cut()
        for way in self._ways:
            way.join()
        self.near.close()
        self.far.close()

    def cut(self) -> None:
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self.near.recv(PIECE_BYTES):
                self.line.open.wait()
                self.writes = self.writes or WRITES in piece
                if self.writes and COMMIT in piece and self.line.loses_answer:
                    self.line.loses_answer, self.doomed = False, True
                    self.line.lost += 1
                self.far.sendall(piece)
        self.cut()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while (piece := self.far.recv(PIECE_BYTES)) and not self.doomed:
                self.line.open.wait()
                self.near.sendall(piece)
        self.cut()


class Line:
    """Answers on a socket in `place` as the server does that answers on one in
    `there`."""

    def __init__(self, place: Path, there: Path) -> None:
        self.place, self._there = place, there
        self.open = threading.Event()
        self.open.set()
        self.loses_answer = False
        self.lost = 0  # answers to commits, so far
        self._talks: list[Talk] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(place / SOCKET))
        self._listening.listen()
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def url(self, address: str) -> str:
        """The address of a database of the server, by this line."""
        return address.replace(f"host={self._there}", f"host={self.place}")

    def cut(self) -> None:
        """Every connection is lost, whatever is under way."""
        for talk in self._talks:
            talk.cut()

    def freeze(self) -> None:
        """Nothing comes through, either way, until `thaw`: the server hears a head that
        sleeps."""
        self.open.clear()

    def thaw(self) -> None:
        self.open.set()

    def close(self) -> None:
        self.thaw()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()
        for talk in self._talks:
            talk.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.socket(socket.AF_UNIX)
                try:
                    far.connect(str(self._there / SOCKET))
                except OSError:  # the server is away
                    near.close()
                    far.close()
                    continue
                self._talks.append(Talk(self, near, far))


@contextlib.contextmanager
def lines(count: int, there: Path) -> Iterator[list[Line]]:
    """So many lines to the server whose socket lies there."""
    place = Path(tempfile.mkdtemp(prefix="corral-line-", dir="/tmp"))
    made: list[Line] = []
    try:
        for number in range(count):
            own = place / str(number)
            own.mkdir()
            made.append(Line(own, there))
        yield made
    finally:
        for one in made:
            one.close()
        shutil.rmtree(place)
