"""All connections to a shim: its agent's, its ranks', and those not yet identified."""

import socket
from collections.abc import Callable
from typing import Final

from corral.agent.shim.connection import Message, ShimConnection
from corral.agent.shim.event_loop import Loop

MOST_LINES: Final = 512  # well below the descriptors that a process may have


class ShimConnections:
    """All connections of one shim. `heard` is called with each message; `dropped` with
    the reason for each message that is not accepted."""

    def __init__(
        self,
        loop: Loop,
        heard: Callable[[ShimConnection, Message], None],
        dropped: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._heard = heard
        self._dropped = dropped
        self._lines: list[ShimConnection] = []

    def connect(self, connection: socket.socket) -> ShimConnection | None:
        """Return a connection for the new socket; close the socket and return None if
        there are too many already."""
        if len(self._lines) >= MOST_LINES:
            connection.close()
            return None
        line = ShimConnection(
            self._loop, connection, self._heard, self._lines.remove, self._dropped
        )
        self._lines.append(line)
        return line

    def read_programs(self) -> None:
        """Process what programs have sent. One that has ended may have sent its last
        message before."""
        for line in list(self._lines):
            if line.is_open and not line.watches:
                line.read()

    def tell_ranks(self, message: Message) -> None:
        for line in list(self._lines):
            if line.is_rank:
                line.send(message)

    def tell_agents(self, message: Message) -> None:
        for line in list(self._lines):
            if line.watches:
                line.send(message)

    def renew(self, state: Message) -> None:
        """Send this state to each agent; a newer state that arrives before there is
        room replaces it."""
        for line in list(self._lines):
            if line.watches:
                line.renew(state)
