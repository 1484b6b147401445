"""A terminal into a running attempt: the shim hands over descriptors, and the agent
forwards the bytes."""

import asyncio
import io
import json
import os
import socket
from contextlib import suppress
from typing import Final

from corral.agent.shim.attach import ANSWER
from corral.agent.shim.rank_process import END_OF_INPUT
from corral.domain.errors import Refusal

ANSWER_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 0.5
END_SECONDS: Final = 2.0  # a shell lets go of its terminal a moment before it is reaped


class AttachRefused(Refusal):
    """The attempt has nothing to attach to."""

    code = "attach_refused"


class Output(asyncio.StreamReader):
    """Output of a terminal or of a rank, as a stream. `exit_code` is set at the end; it
    is None if the shim is gone or the client left first."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self.exit_code: int | None = None
        self._connection = connection
        self._source: asyncio.BaseTransport | None = None
        self._hearing: asyncio.Task[None] | None = None

    def set_transport(self, transport: asyncio.BaseTransport) -> None:
        super().set_transport(transport)
        self._source = transport

    def feed_eof(self) -> None:
        """Delay the end of the stream until the exit code of the shell or the rank has
        arrived."""
        if self._hearing is None:
            self._hearing = asyncio.get_running_loop().create_task(self._hear())

    async def _hear(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            with self._connection as connection:
                async with asyncio.timeout(END_SECONDS):
                    reply = await loop.sock_recv(connection, 16)
                self.exit_code = int(reply)
        except (OSError, ValueError, TimeoutError):
            self.exit_code = None
        finally:
            super().feed_eof()

    def leave(self) -> None:
        """Stop listening. A shell without an open terminal receives SIGHUP."""
        if self._source is not None:
            self._source.close()
        if self._hearing is None:
            self._connection.close()


class Input(asyncio.StreamWriter):
    """Input for a terminal or for the standard input of a rank."""

    # where a rank's output comes from; a shell has none
    listens: socket.socket | None = None

    def end(self) -> None:
        """End the input: a shell exits, and a rank reads end-of-file once it has read
        all input."""
        if self.listens is None:
            self._type_end()
            return
        self.close()
        with suppress(OSError):
            self.listens.send(END_OF_INPUT)

    def _type_end(self) -> None:
        """Send the end of input repeatedly until the shell has exited: a shell that is
        between two prompts may miss it."""
        if not self.is_closing():
            self.write(END_OF_INPUT)
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._type_end)


class _Ended(asyncio.StreamReaderProtocol):
    """Protocol that hides the error of a terminal whose shell has ended: the terminal
    reads as end-of-file."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None if isinstance(exc, OSError) else exc)


async def open_terminal(
    connection: socket.socket,
    rank: int,
    *,
    shell: bool,
    rows: int,
    columns: int,
    command: str = "",
) -> tuple[asyncio.StreamReader, Input]:
    """Ask the shim for a terminal or a rank's input and output, and return output and
    input. Raises: AttachRefused with the shim's reason."""
    request = {
        "type": "attach",
        "rank": rank,
        "shell": shell,
        "rows": rows,
        "columns": columns,
        "command": command,
    }
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            descriptor, *end_descriptors = await _request_descriptors(
                connection, request
            )
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
        # an older shim's
        reader = (
            Output(_nonblocking_socket(end_descriptors[0]))
            if end_descriptors
            else asyncio.StreamReader()
        )
        writer = await _open_writer(descriptor)
        writer.listens = connection
        return await _open_reader(connection, reader), writer
    source = os.fdopen(os.dup(descriptor), "rb", 0)
    return await _open_reader(source, Output(connection)), await _open_writer(
        descriptor
    )


def _nonblocking_socket(descriptor: int) -> socket.socket:
    end_socket = socket.socket(fileno=descriptor)
    end_socket.setblocking(False)
    return end_socket


async def _request_descriptors(
    connection: socket.socket, request: dict[str, object]
) -> list[int]:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, json.dumps(request).encode() + b"\n")
    ready = asyncio.Event()
    loop.add_reader(connection.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection.fileno())
    answer_bytes, received, _, _ = socket.recv_fds(connection, len(ANSWER), 2)
    if received:
        return received
    remaining_bytes = connection.recv(4096) if answer_bytes else b""
    raise AttachRefused(
        (answer_bytes + remaining_bytes).decode("utf-8", "replace")
        or "the attempt has ended"
    )


async def _open_reader(
    source: socket.socket | io.FileIO, reader: asyncio.StreamReader
) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: _Ended(reader), source)
    return reader


async def _open_writer(descriptor: int) -> Input:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "wb", 0)
    )
    return Input(transport, protocol, reader, loop)
