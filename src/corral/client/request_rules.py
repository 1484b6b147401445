"""Rules that both clients share: headers, retries, and the position at which a stream
continues. No I/O."""

import json
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

from corral import __version__
from corral.client.api_calls import ApiCall, Stream
from corral.client.head_target import HeadTarget
from corral.client.sse import Parser

T = TypeVar("T")

NAPS: Final = (0.05, 0.2, 0.5, 1.0)  # seconds before each further try of a call
# the longest for a head that takes no connection: it is hardly there
REFUSED_NAP: Final = 0.2
STREAM_NAP: Final = 0.25
STREAM_PATIENCE: Final = 15.0  # seconds that a stream waits for a head that went away
CONNECT_TIMEOUT: Final = 5.0
READ_TIMEOUT: Final = 30.0  # the head sends a heartbeat into a stream each 10 s


def headers(target: HeadTarget) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {target.token}",
        "User-Agent": f"corral/{__version__}",
        "Accept-Encoding": "identity",
    }


def naps(heads: int) -> tuple[float | None, ...]:
    """Return the waits in seconds between the tries of a call, one for each further
    try, with a None at the end: after the last try there is no other. With several
    heads, each of the other heads is tried without a wait."""
    return (*[0.0] * (heads - 1), *NAPS, None)


def worth_another_try(call: ApiCall[T], nap: float, *, refused: bool) -> bool:
    """Return whether to repeat a call after a failed connection.

    Args:
        nap: seconds to wait before the next try.
        refused: whether the call was certainly not sent. Then it is repeated while
            `nap` is at most REFUSED_NAP. Otherwise the call may have been sent, and is
            repeated only if it is repeatable.
    """
    return nap <= REFUSED_NAP if refused else call.repeatable


def retry_after(header: str | None, otherwise: float) -> float:
    """Return the seconds to wait after a 503: the header value, at most 2, or
    `otherwise` without a valid header."""
    try:
        return min(2.0, float(header)) if header else otherwise
    except ValueError:
        return otherwise


def body_of(content: bytes) -> Any:
    return json.loads(content) if content else None


class Following(Generic[T]):
    """Reader of one event stream that survives lost connections. Each new connection
    continues after the last event that was read."""

    def __init__(self, stream: Stream[T]) -> None:
        self._stream = stream
        self._places: dict[str, str] = {}
        self._parser = Parser()
        self.over = False

    def query(self) -> dict[str, str | int]:
        """Return the query parameters of the next connection."""
        self._parser = Parser()
        query = dict(self._stream.query)
        if self._places:
            query.pop("tail", None)
            query["after"] = ",".join(
                f"{key}:{stream_position}" if key else stream_position
                for key, stream_position in self._places.items()
            )
        return query

    def feed(self, piece: bytes) -> Iterator[T]:
        for server_event in self._parser.feed(piece):
            if server_event.kind == "end":
                self.over = True
                return
            value = self._stream.read(json.loads(server_event.data))
            if server_event.id:
                key, _, stream_position = server_event.id.rpartition(":")
                self._places[key] = stream_position
            self.over = self._stream.is_last(value)
            yield value
