"""Parsing of server-sent events from bytes as they arrive. No I/O."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event: its kind and id (each empty if the event has none), and its data."""

    kind: str
    id: str
    data: str


class Parser:
    """Parser of server-sent events. `feed` takes bytes that may be cut anywhere, and
    yields complete events. Comments are heartbeats."""

    def __init__(self) -> None:
        self._rest = b""
        self._kind = ""
        self._id = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        self._rest += piece
        if len(self._rest) > LONGEST:
            raise ValueError(f"a line of the event stream exceeds {LONGEST:,} bytes")
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            yield from self._parse_line(line.rstrip(b"\r").decode(errors="replace"))

    def _parse_line(self, line: str) -> Iterator[ServerSentEvent]:
        if not line:
            if self._data:
                yield ServerSentEvent(self._kind, self._id, "\n".join(self._data))
            self._kind, self._data = "", []
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._kind = value
        elif field == "id":
            self._id = value
