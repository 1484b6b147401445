"""The launcher's shims: which of them wait for another attempt, and when idle ones end."""

import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

IDLE_SECONDS: Final = 5.0  # that a shim waits for another attempt
MOST_IDLE: Final = 16
MOST_ATTEMPTS: Final = 256  # of one shim
_GIVEN: Final = b"s"


class IdleShims:
    """The sockets of the launcher's shims, one for each shim, by descriptor. An idle
    shim ends when its socket closes.

    Each socket is registered with `poll`. The owner of `poll` calls `hear` for the
    descriptors that `has` knows.
    """

    def __init__(self, poll: select.epoll) -> None:
        self._poll = poll
        self._sockets: dict[int, socket.socket] = {}
        self._attempts: dict[int, int] = {}
        self._idle: dict[int, float] = {}  # since when; the longest first

    def has(self, descriptor: int) -> bool:
        return descriptor in self._sockets

    def start(
        self, agent: socket.socket, be: Callable[[socket.socket], NoReturn]
    ) -> None:
        """Hand the agent's socket to an idle shim. If no shim is idle, create a new
        process that calls `be`. Raises: OSError when no process can be created."""
        if not self._assign_idle_shim(agent):
            self._fork_shim(be)

    def hear(self, descriptor: int) -> None:
        """Handle an event of a shim's socket: the shim has become idle, or has ended."""
        try:
            reply = self._sockets[descriptor].recv(16, socket.MSG_DONTWAIT)
        except BlockingIOError:  # an event of what had this descriptor before
            return
        except OSError:
            reply = b""
        if not reply or self._attempts[descriptor] >= MOST_ATTEMPTS:
            self._let_go(descriptor)
            return
        self._idle[descriptor] = time.monotonic()
        if len(self._idle) > MOST_IDLE:
            self._let_go(next(iter(self._idle)))

    def wait_seconds(self) -> float | None:
        """Return the seconds until the first idle shim has been idle for too long; None
        where no shim is idle."""
        if not self._idle:
            return None
        return max(
            0.0, next(iter(self._idle.values())) + IDLE_SECONDS - time.monotonic()
        )

    def expire(self) -> None:
        """End the shims that have been idle for too long."""
        idle_cutoff = time.monotonic() - IDLE_SECONDS
        for descriptor in [
            descriptor_idle
            for descriptor_idle, idle_since in self._idle.items()
            if idle_since <= idle_cutoff
        ]:
            self._let_go(descriptor)

    def close(self) -> None:
        """Close the sockets to shims, in a new process that must not keep them."""
        for connection in self._sockets.values():
            connection.close()

    def _assign_idle_shim(self, agent: socket.socket) -> bool:
        while self._idle:
            # the one that waits least has the warmest memory
            descriptor, _ = self._idle.popitem()
            with suppress(OSError):
                socket.send_fds(self._sockets[descriptor], [_GIVEN], [agent.fileno()])
                self._attempts[descriptor] += 1
                return True
            self._let_go(descriptor)
        return False

    def _fork_shim(self, be: Callable[[socket.socket], NoReturn]) -> None:
        ours, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_socket:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                raise
            if pid == 0:
                ours.close()
                be(child_socket)
        self._sockets[ours.fileno()] = ours
        self._attempts[ours.fileno()] = 1
        self._poll.register(ours.fileno(), select.EPOLLIN)

    def _let_go(self, descriptor: int) -> None:
        self._idle.pop(descriptor, None)
        del self._attempts[descriptor]
        self._poll.unregister(descriptor)
        self._sockets.pop(descriptor).close()
