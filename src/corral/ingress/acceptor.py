"""Acceptance of connections on a listening socket, with a limit on their number."""

import asyncio
import errno
import selectors
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from corral.ingress.addresses import TrustedProxies, network_of
from corral.ingress.connections import ClosedReason, Connection, ConnectionTable

BACKLOG: Final = 2048
ACCEPTED_AT_ONCE: Final = 128  # in one round of the loop
OPENED_AT_ONCE: Final = 16  # the same; what is open is served between
SWEEP_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.1  # without another file or buffer
_NO_MORE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Factory = Callable[[Connection], asyncio.Protocol]


class Acceptor:
    """Accepts connections, and closes at once those that the table does not admit.

    A connection is opened (TLS, a protocol) only after its first bytes have arrived, so
    that idle connections cost a file descriptor and little else. An acceptor has the
    methods of asyncio's servers that uvicorn calls. The protocol that `factory` makes
    sets `end` of its connection, and calls `leave` when the connection is lost.
    """

    def __init__(
        self,
        table: ConnectionTable,
        listening: socket.socket,
        factory: Factory,
        *,
        tls: ssl.SSLContext | None = None,
        proxies: TrustedProxies,
    ) -> None:
        self._table = table
        self._listening = listening
        self._factory = factory
        self._tls = tls
        self._proxies = proxies
        self._loop = asyncio.get_running_loop()
        # one of its own: its sockets cost next to none
        self._silent = selectors.DefaultSelector()
        self._ready: deque[tuple[socket.socket, Connection]] = deque()
        self._is_scheduled = False
        self._opening: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None
        self._paused: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to listen and to accept."""
        self._listening.listen(BACKLOG)
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening, self._accept_pending)
        self._loop.add_reader(self._silent, self._queue_readable)
        self._sweeping = self._loop.create_task(self._sweep_periodically())

    def close(self) -> None:
        """Stop accepting connections. Open connections stay open."""
        if self._sweeping is None:
            return
        self._sweeping.cancel()
        self._sweeping = None
        if self._paused is not None:
            self._paused.cancel()
        self._loop.remove_reader(self._listening)
        self._loop.remove_reader(self._silent)
        silent = [(key.fileobj, key.data) for key in self._silent.get_map().values()]
        self._silent.close()
        for accepted, connection in [*silent, *self._ready]:
            assert isinstance(accepted, socket.socket)
            connection.leave()
            accepted.close()
        self._ready.clear()

    async def wait_closed(self) -> None:
        """Return when no handshake is in progress any more."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    async def _sweep_periodically(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._table.sweep()

    def _accept_pending(self) -> None:
        """Accept all queued connections of the listening socket, so that the newest one
        is handled at once."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno in _NO_MORE:
                    self._pause_accepting()
                    break
                continue  # the peer was gone again
            self._admit_socket(accepted, str(peer[0]))

    def _admit_socket(self, accepted: socket.socket, peer: str) -> None:
        connection = self._table.admit(network_of(peer), shared=peer in self._proxies)
        if connection is None:
            accepted.close()
            return
        accepted.setblocking(False)
        connection.end = Silent(accepted, self._silent)
        self._silent.register(accepted, selectors.EVENT_READ, connection)

    def _queue_readable(self) -> None:
        """Queue for opening the connections that have received their first bytes or
        were closed by the client."""
        for key, _ in self._silent.select(0):
            accepted, connection = key.fileobj, key.data
            assert isinstance(accepted, socket.socket)
            self._silent.unregister(accepted)
            # it is not evicted until it is open: its turn comes soon
            connection.end = None
            connection.serve()
            self._ready.append((accepted, connection))
        if self._ready and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._open_some)

    def _open_some(self) -> None:
        """Open a few connections in each round of the loop."""
        self._is_scheduled = False
        for _ in range(min(OPENED_AT_ONCE, len(self._ready))):
            accepted, connection = self._ready.popleft()
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._open(accepted, connection))
            connection.end = Opening(task)
            connection.wait()
            self._opening.add(task)
            task.add_done_callback(partial(self._opened, accepted, connection))
        if self._ready:
            self._is_scheduled = True
            self._loop.call_soon(self._open_some)

    async def _open(self, accepted: socket.socket, connection: Connection) -> None:
        """Do the TLS handshake, and pass the connection to its protocol."""
        if self._tls is None:
            await self._loop.connect_accepted_socket(
                lambda: self._factory(connection), accepted
            )
            return
        await self._loop.connect_accepted_socket(
            lambda: self._factory(connection),
            accepted,
            ssl=self._tls,
            ssl_handshake_timeout=self._table.limits.head_seconds,
        )

    def _opened(
        self, accepted: socket.socket, connection: Connection, task: asyncio.Task[None]
    ) -> None:
        """Clean up after an attempt to open a connection; release it if it was closed
        or evicted before it was open."""
        self._opening.discard(task)
        if not task.cancelled() and task.exception() is None:
            return
        if self._tls is not None and not task.cancelled():
            self._table.refused[ClosedReason.HANDSHAKE] += 1
        connection.leave()
        accepted.close()

    def _pause_accepting(self) -> None:
        """Close one connection, because no file descriptor is free; accept again after
        a short pause."""
        self._table.make_room()
        self._loop.remove_reader(self._listening)
        self._paused = self._loop.call_later(PAUSE_SECONDS, self._resume_accepting)

    def _resume_accepting(self) -> None:
        self._paused = None
        self._loop.add_reader(self._listening, self._accept_pending)


class Silent:
    """A connection that has received no bytes yet."""

    __slots__ = ("_accepted", "_selector")

    def __init__(
        self, accepted: socket.socket, selector: selectors.BaseSelector
    ) -> None:
        self._accepted = accepted
        self._selector = selector

    def abort(self) -> None:
        self._selector.unregister(self._accepted)
        self._accepted.close()


class Opening:
    """A connection whose handshake is in progress."""

    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def abort(self) -> None:
        self._task.cancel()
