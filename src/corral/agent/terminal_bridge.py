"""Forwarding of bytes between a user's terminal, to which the head connects, and a
program on the node."""

import asyncio
import contextlib
from typing import Final

from websockets.asyncio.client import ClientConnection

from corral.agent.connection import first_of
from corral.agent.supervisor.attach import Input, Output
from corral.wire.agent_messages import ENDED

READ_BYTES: Final = 64 * 1024


async def carry(
    connection: ClientConnection, reader: asyncio.StreamReader, writer: Input
) -> None:
    """Forward bytes between the user's connection and the program until either side
    ends. Then close both sides, with the exit code of the shell or rank if it is known.

    Raises: OSError, WebSocketException.
    """
    try:
        await first_of(_to_person(reader, connection), _from_person(connection, writer))
        if isinstance(reader, Output) and reader.exit_code is not None:
            await connection.close(ENDED + reader.exit_code)
    finally:
        if isinstance(reader, Output):
            reader.leave()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _to_person(
    reader: asyncio.StreamReader, connection: ClientConnection
) -> None:
    while data := await reader.read(READ_BYTES):
        await connection.send(data)


async def _from_person(connection: ClientConnection, writer: Input) -> None:
    """Forward the user's input to the program; an empty frame ends the input.

    Input that the program no longer reads is dropped without an error, because the
    program's output already reports that it ended.
    """
    async for frame in connection:
        if not frame:
            writer.end()
            continue
        with contextlib.suppress(OSError):
            writer.write(frame if isinstance(frame, bytes) else frame.encode())
            await writer.drain()
