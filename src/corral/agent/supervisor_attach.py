"""A terminal into a running attempt: the shim hands over descriptors, the agent pumps bytes."""

import asyncio
import io
import json
import os
import socket
from typing import Final

from corral.agent.shim.attach import ANSWER
from corral.domain.errors import Refusal

ANSWER_SECONDS: Final = 30.0


class AttachRefused(Refusal):
    """There is nothing to attach to."""

    code = "attach_refused"


class _Ended(asyncio.StreamReaderProtocol):
    """A terminal whose shell has ended reads as an end, not as an error of input."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None if isinstance(exc, OSError) else exc)


async def open_terminal(
    connection: socket.socket, rank: int, *, shell: bool, rows: int, columns: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises: AttachRefused with the shim's words."""
    wish = {"type": "attach", "rank": rank, "shell": shell, "rows": rows, "columns": columns}
    try:
        descriptor = await asyncio.wait_for(_ask(connection, wish), ANSWER_SECONDS)
    except TimeoutError as silence:
        connection.close()
        raise AttachRefused("the attempt does not answer") from silence
    except OSError as hung_up:
        connection.close()
        raise AttachRefused("the attempt has ended") from hung_up
    except AttachRefused:
        connection.close()
        raise
    if not shell:
        return await _reader(connection), await _writer(descriptor)
    connection.close()
    return await _reader(os.fdopen(os.dup(descriptor), "rb", 0)), await _writer(descriptor)


async def _ask(connection: socket.socket, wish: dict[str, object]) -> int:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, json.dumps(wish).encode() + b"\n")
    ready = asyncio.Event()
    loop.add_reader(connection.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection.fileno())
    words, received, _, _ = socket.recv_fds(connection, len(ANSWER), 1)
    if received:
        return received[0]
    more = connection.recv(4096) if words else b""
    raise AttachRefused((words + more).decode("utf-8", "replace") or "the attempt has ended")


async def _reader(source: socket.socket | io.FileIO) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: _Ended(reader), source)
    return reader


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "wb", 0)
    )
    return asyncio.StreamWriter(transport, protocol, reader, loop)
