"""Connecting to the head, with retries: the head may be away for a while and come back
at another address."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from corral.agent.head_addresses import HeadAddresses
from corral.domain.errors import CorralError, Unauthorised
from corral.wire.agent_messages import FRAME_BYTES
from corral.wire.head_proof import Challenge, needs_proof
from corral.wire.proven_socket import proven_socket

FIRST_DELAY_SECONDS: Final = 0.05
LONGEST_DELAY_SECONDS: Final = 1.0
_SETTLED_SECONDS: Final = 1.0  # a connection that lasted as long was a good one
log = logging.getLogger(__name__)


async def first_of(*ways: Coroutine[None, None, None]) -> None:
    """Run all coroutines until one of them ends, cancel the others, and raise the
    exception of the one that ended, if any."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def delay_seconds(failures: int, chance: Random) -> float:
    """Return the delay in seconds before the next try: none after the first failure,
    then longer with each failure in a row, jittered, and at most 1 s."""
    if failures <= 1:
        return 0.0
    full_delay_seconds = min(
        FIRST_DELAY_SECONDS * 2.0 ** min(failures - 2, 16), LONGEST_DELAY_SECONDS
    )
    return full_delay_seconds * chance.uniform(0.5, 1.0)


@dataclass(slots=True, kw_only=True)
class Dialler:
    """Opens WebSockets to the current address of the head, with the node's token."""

    heads: HeadAddresses
    token: str
    trusted: ssl.SSLContext | None = None
    chance: Random = field(default_factory=Random)
    # the head refuses the token
    refused: asyncio.Event = field(default_factory=asyncio.Event)
    _said: str = ""

    async def dial(self, path: str) -> ClientConnection:
        """Open one connection to the head.

        Raises: OSError, ValueError, WebSocketException, TimeoutError when this fails.
        """
        return await self._open(self.heads.url().replace("http", "ws", 1) + path)

    async def _open(self, url: str) -> ClientConnection:
        return await connect(
            url,
            sock=await self._proven(url.replace("ws", "http", 1)),
            ssl=self.trusted if url.startswith("wss") else None,
            additional_headers={"Authorization": f"Bearer {self.token}"},
            compression=None,
            max_size=FRAME_BYTES,
            open_timeout=5.0,
            close_timeout=0.1,
            # each talk has beats of its own and knows when they fail
            ping_interval=None,
            proxy=None,
            user_agent_header=None,
        )

    async def _proven(self, url: str) -> socket.socket | None:
        """Return a connection to a head that has proven its identity; None where no
        such proof is needed, because TLS proves the identity.

        Raises: ConnectionError when another process listens there, or when the head
        does not know the token; OSError when the connection fails.
        """
        token = self.token
        try:
            if not needs_proof(url):
                return None
            return await proven_socket(
                url, lambda address: Challenge.by_token(url, token, address)
            )
        except CorralError as refused:
            if isinstance(refused, Unauthorised):
                self.refused.set()
            raise ConnectionError(refused.message) from refused

    async def keep(
        self, path: str, talk: Callable[[ClientConnection], Coroutine[None, None, None]]
    ) -> None:
        """Keep a connection to the head open for ever: connect to `path`, run `talk`
        until the connection is lost or another head takes over, and connect again."""
        clock = asyncio.get_running_loop().time
        failures = 0
        while True:
            began, url = clock(), ""
            try:
                url = self.heads.url()
                async with await self.dial(path) as connection:
                    began = clock()
                    self._say(path, "")
                    self.heads.worked()
                    await first_of(talk(connection), self.heads.elsewhere())
            except (OSError, ValueError, WebSocketException) as trouble:
                if (
                    isinstance(trouble, InvalidStatus)
                    and trouble.response.status_code == 401
                ):
                    self.refused.set()
                self._say(path, _error_text(trouble))
                self.heads.failed(url, trouble)
            except Exception as fault:
                # of ours, in one talk: the node needs the next one
                self._say(path, _error_text(fault), fault)
            failures = 0 if clock() - began >= _SETTLED_SECONDS else failures + 1
            await asyncio.sleep(delay_seconds(max(failures, 1), self.chance))

    def _say(self, path: str, trouble: str, fault: Exception | None = None) -> None:
        """Log a change of the connection's state: a new problem, or with an empty
        `trouble` that the connection works. A problem that lasts makes one line.
        `fault` is a bug of Corral, which is logged with its traceback."""
        if trouble != self._said:
            self._said = trouble
            if trouble:
                log.warning(
                    "no connection to the head at %s: %s", path, trouble, exc_info=fault
                )
            else:
                log.info("connected to the head at %s", path)


def _error_text(trouble: Exception) -> str:
    if isinstance(trouble, InvalidStatus):
        status = trouble.response.status_code
        meanings = {
            401: "the head does not know this node's token",
            403: "this node's token is not allowed to do this",
        }
        return f"HTTP {status}: {meanings.get(status, 'the head refused the request')}"
    return f"{type(trouble).__name__}: {trouble}"
