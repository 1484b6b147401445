"""Callers that wait for their requests to be granted."""

import asyncio

from corral.domain.ids import Sequence
from corral.domain.requests import StoredRequest
from corral.domain.world import World


class Granted:
    """Wakes the callers of one head whose requests have been granted. A request stays
    stored and is granted even if its caller no longer waits."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Sequence, asyncio.Future[None]]] = []

    async def wait(self, world: World, request: StoredRequest) -> None:
        """Wait for the tick that takes the request in."""
        if world.granted < request.sequence:
            granted = asyncio.get_running_loop().create_future()
            self._waiting.append((request.sequence, granted))
            await granted

    def announce(self, world: World) -> None:
        """Wake the callers whose requests have been granted by now."""
        waiters, self._waiting = self._waiting, []
        for sequence, granted in waiters:
            if sequence > world.granted:
                self._waiting.append((sequence, granted))
            elif not granted.done():
                granted.set_result(None)
