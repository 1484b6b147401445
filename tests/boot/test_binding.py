"""The socket that a head serves on."""

import asyncio
import socket
from pathlib import Path

from corral.boot.binding import bind
from corral.boot.settings import ClusterDir


def test_small_answers_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Nagle's algorithm holds the second write until the client acknowledges the first."""

    async def serve() -> int:
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            own: socket.socket = writer.get_extra_info("socket")
            told.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with bind(ClusterDir(tmp_path), "127.0.0.1") as listening:
            listening.listen()
            async with await asyncio.start_server(answer, sock=listening):
                _, writer = await asyncio.open_connection(*listening.getsockname())
                writer.close()
                return await told

    assert asyncio.run(serve()) == 1
