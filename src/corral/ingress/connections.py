"""Connections of one server: their number, and the time for which each may delay it.

A connection is proven once a valid token has arrived over it. Only unproven connections
count against the limits in this module. Connections of agents and users with a token
stay open, regardless of other traffic. If unproven connections reach a limit, the
oldest one that has sent no complete request is closed to admit the next. A client with
a token sends its request at once; an attacker that holds connections open does not.
"""

from collections import Counter
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of a server.

    Args:
        total: maximum number of unproven connections.
        per_address: maximum number of unproven connections from one address (IPv6: one
            /64).
        per_holder: connections that one user, or one node, can prove with all of its
            tokens; further ones count as unproven.
        head_bytes: bytes of a request before its body, and of what follows a chunked
            body.
        headers: headers of a request.
        head_seconds: seconds in which the TLS handshake, and then a request's head,
            must arrive.
        serve_seconds: seconds for which an unproven connection may have a request in
            progress.
        pipelined: requests that may be sent before the first of them is answered.
    """

    total: int = 2048
    per_address: int = 1024
    per_holder: int = 1024
    head_bytes: int = 64 * 1024
    headers: int = 100
    head_seconds: float = 10.0
    serve_seconds: float = 60.0
    pipelined: int = 8


class ClosedReason(Enum):
    """Reasons for closing a connection, as `/metrics` counts them."""

    ADDRESS = "address_limit"
    TOTAL = "total_limit"
    FILES = "file_limit"
    HANDSHAKE = "handshake"
    HEAD_SIZE = "head_size"
    HEAD_TIME = "head_time"
    SERVE_TIME = "serve_time"
    PIPELINE = "pipeline"
    MALFORMED = "malformed"


class Closable(Protocol):
    """A transport, or another object that can close a connection at once."""

    def abort(self) -> None: ...


class _Phase(Enum):
    WAITING = "waiting"  # for the handshake, or for a complete request
    SERVING = "serving"
    CLOSING = "closing"
    GONE = "gone"


CONNECTION: Final = "corral.connection"  # in the state of an ASGI scope
CLOSE_SECONDS: Final = 2.0  # to take in the last answer; then it is cut off


class Connection:
    """One connection, from its acceptance to its end."""

    __slots__ = ("_table", "address", "end", "phase", "prover", "since")

    def __init__(self, table: "ConnectionTable", address: str, now: float) -> None:
        self._table = table
        self.address = address
        self.since = now
        self.phase = _Phase.WAITING
        self.prover: str | None = None
        self.end: Closable | None = None

    @property
    def is_proven(self) -> bool:
        return self.prover is not None

    @property
    def limits(self) -> ConnectionLimits:
        return self._table.limits

    def wait(self) -> None:
        """Record that the connection waits for a request."""
        self._table.move(self, _Phase.WAITING)

    def serve(self) -> None:
        """Record that a request is complete up to its body."""
        self._table.move(self, _Phase.SERVING)

    def prove(self, holder: str) -> None:
        """Record that a valid token of `holder` has arrived. One holder can prove a
        limited number of connections."""
        self._table.prove(self, holder)

    def refuse(self, why: ClosedReason) -> None:
        """Count a refusal; the connection is closing and will be cut off."""
        self._table.refused[why] += 1
        self._table.move(self, _Phase.CLOSING)

    def leave(self) -> None:
        """Remove the connection from the table, because it is closed."""
        self._table.remove(self)


class _Share:
    """Unproven connections of one address: their number, and those of them that wait
    for a request, oldest first."""

    __slots__ = ("count", "waiting")

    def __init__(self) -> None:
        self.count = 0
        self.waiting: dict[Connection, None] = {}


def connection_of(scope: MutableMapping[str, Any]) -> Connection | None:
    """Return the connection of an ASGI scope; None under a server without a connection
    table."""
    connection: Connection | None = scope.get("state", {}).get(CONNECTION)
    return connection


class ConnectionTable:
    """All connections of a server, and counts of the refused ones."""

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self.refused: Counter[ClosedReason] = Counter()
        self._clock = clock
        self._phases: dict[_Phase, dict[Connection, None]] = {
            _Phase.WAITING: {},
            _Phase.SERVING: {},
            _Phase.CLOSING: {},
        }
        self._unproven = 0
        self._by_address: dict[str, _Share] = {}
        self._by_holder: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._unproven + self._by_holder.total()

    @property
    def unproven(self) -> int:
        return self._unproven

    def admit(self, address: str, *, shared: bool = False) -> Connection | None:
        """Admit a new connection; return None if it must be closed at once.

        Args:
            address: the network that counts as one address.
            shared: the address is a proxy's, which connects for many clients, so only
                the total limit applies.
        """
        limits, share = self.limits, self._by_address.get(address)
        if share is not None and not shared and share.count >= limits.per_address:
            if not self._evict_oldest(share.waiting, ClosedReason.ADDRESS):
                return None
        elif self._unproven >= limits.total and not self._evict_oldest(
            self._phases[_Phase.WAITING], ClosedReason.TOTAL
        ):
            return None
        connection = Connection(self, address, self._clock())
        self._by_address.setdefault(address, _Share()).count += 1
        self._unproven += 1
        self._enter_phase(connection, _Phase.WAITING)
        return connection

    def _evict_oldest(self, among: dict[Connection, None], why: ClosedReason) -> bool:
        """Close the oldest unproven connection in `among`. Return False without one;
        the newest is then closed."""
        self.refused[why] += 1
        oldest = next(
            (connection for connection in among if not connection.is_proven), None
        )
        if oldest is not None:
            self._abort_connection(oldest)
        return oldest is not None

    def make_room(self) -> None:
        """Close the oldest unproven connection, because the process has no free file
        descriptor."""
        self._evict_oldest(self._phases[_Phase.WAITING], ClosedReason.FILES)

    def sweep(self) -> None:
        """Close each connection that has been in its phase for too long. Called about
        once a second."""
        limits, now = self.limits, self._clock()
        for phase, seconds, closed_reason in (
            (_Phase.WAITING, limits.head_seconds, ClosedReason.HEAD_TIME),
            (_Phase.SERVING, limits.serve_seconds, ClosedReason.SERVE_TIME),
            (_Phase.CLOSING, CLOSE_SECONDS, None),
        ):
            late = []
            for connection in self._phases[phase]:
                if now - connection.since < seconds:
                    break
                late.append(connection)
            for connection in late:
                if closed_reason is not None:
                    self.refused[closed_reason] += 1
                self._abort_connection(connection)

    def _abort_connection(self, connection: Connection) -> None:
        transport = connection.end
        self.remove(connection)
        if transport is not None:
            transport.abort()

    def move(self, connection: Connection, phase: _Phase) -> None:
        """Move the connection to a phase, which begins now.

        A proven connection in the serving phase has no deadline here: the code that
        serves its streams and WebSockets limits them.
        """
        if connection.phase is _Phase.GONE:
            return
        self._exit(connection)
        connection.since = self._clock()
        self._enter_phase(connection, phase)

    def _enter_phase(self, connection: Connection, phase: _Phase) -> None:
        connection.phase = phase
        if phase is not _Phase.SERVING or not connection.is_proven:
            self._phases[phase][connection] = None
        if phase is _Phase.WAITING and not connection.is_proven:
            self._by_address[connection.address].waiting[connection] = None

    def _exit(self, connection: Connection) -> None:
        self._phases[connection.phase].pop(connection, None)
        if not connection.is_proven:
            self._by_address[connection.address].waiting.pop(connection, None)

    def prove(self, connection: Connection, holder: str) -> None:
        if connection.phase is _Phase.GONE or connection.prover == holder:
            return
        if self._by_holder[holder] >= self.limits.per_holder:
            return
        self._exit(connection)
        self._decrement_counts(connection)
        connection.prover = holder
        self._by_holder[holder] += 1
        self._enter_phase(connection, connection.phase)

    def remove(self, connection: Connection) -> None:
        if connection.phase is _Phase.GONE:
            return
        self._exit(connection)
        self._decrement_counts(connection)
        connection.phase = _Phase.GONE
        connection.end = None

    def _decrement_counts(self, connection: Connection) -> None:
        if connection.prover is not None:
            self._by_holder[connection.prover] -= 1
            if not self._by_holder[connection.prover]:
                del self._by_holder[connection.prover]
            return
        self._unproven -= 1
        share = self._by_address[connection.address]
        share.count -= 1
        if not share.count:
            del self._by_address[connection.address]
