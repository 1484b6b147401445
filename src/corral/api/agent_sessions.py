"""Connections that an agent opens at the head's request: for terminals and for outputs."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from starlette.websockets import WebSocket

from corral.api.auth import caller_of
from corral.domain.errors import Conflict, NotFound
from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey
from corral.domain.pilot import part_of

AGENT_SECONDS: Final = 30.0


@dataclass(slots=True, kw_only=True)
class DialledSession:
    """A connection that the head asks a node's agent, or the agent of one attempt on
    that node, to open. `over` is set when the connection is not needed any more."""

    node: NodeId
    agents: tuple[NodeId, ...]
    agent: "asyncio.Future[WebSocket]"
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def dialled(self, what: str) -> WebSocket:
        """Wait for the agent's connection and return it. `what`: the purpose of the
        connection for the error text, for example "terminal". Raises: Conflict when the
        agent does not connect in time."""
        try:
            async with asyncio.timeout(AGENT_SECONDS):
                return await self.agent
        except TimeoutError:
            raise Conflict(
                f"the agent of node {self.node} did not open a connection for the {what} within "
                f"{AGENT_SECONDS:.0f} s",
                hint=f"run: corral node show {self.node}",
            ) from None


class DialledSessions:
    """Connections that agents were asked to open, expected or in use, by session id."""

    def __init__(self) -> None:
        self._open: dict[str, DialledSession] = {}

    @contextmanager
    def opened(
        self, id: str, node: NodeId, key: AttemptKey
    ) -> Iterator[DialledSession]:
        session = DialledSession(
            node=node,
            agents=(node, part_of(node, key)),
            agent=asyncio.get_running_loop().create_future(),
        )
        self._open[id] = session
        try:
            yield session
        finally:
            session.over.set()
            del self._open[id]

    async def agent(self, socket: WebSocket) -> None:
        """Accept the connection that an agent opens for a session, and keep it until
        the session is over. Raises, before the socket is accepted: NotFound if this
        agent has no such session to open."""
        session = self._open.get(socket.path_params["session"])
        is_own_session = (
            session is not None and caller_of(socket).node in session.agents
        )
        if session is None or not is_own_session or session.agent.done():
            raise NotFound("session", socket.path_params["session"])
        await socket.accept()
        session.agent.set_result(socket)
        await session.over.wait()
