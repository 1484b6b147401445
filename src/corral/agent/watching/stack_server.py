"""Answers to the head's requests for stacks, over a connection that the agent has
opened."""

import asyncio
from pathlib import Path
from typing import Final

from websockets.asyncio.client import ClientConnection

from corral.agent.watching.stack_reader import read_stacks
from corral.wire.agent_messages import FRAME_BYTES, StacksNow
from corral.wire.output_frames import DATA, encode_end
from corral.wire.stack_frames import encode_stacks

AT_ONCE: Final = 2


class StackServer:
    """Sender of the stacks of attempts on one node, which serves a limited number of
    requests at the same time."""

    def __init__(self, attempts: Path) -> None:
        self._attempts = attempts
        self._places = asyncio.Semaphore(AT_ONCE)

    async def serve(self, request: StacksNow, connection: ClientConnection) -> None:
        """Read the stacks of the attempt and send them. Raises: OSError,
        WebSocketException."""
        folder = self._attempts / f"{request.job}.{request.attempt}"
        async with self._places:
            answer = encode_stacks(await read_stacks(folder))
        size = FRAME_BYTES // 2
        for offset in range(0, len(answer), size):
            await connection.send(DATA + answer[offset : offset + size])
        await connection.send(encode_end("sent"))
