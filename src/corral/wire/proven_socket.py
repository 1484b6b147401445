"""Asyncio sockets for WebSockets, on which the head proves itself first."""

import asyncio
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from corral.wire.head_proof import PIECE_BYTES, PROOF_SECONDS, Address, Challenge

Ask = Callable[[Address], Challenge]


async def proven_socket(url: str, ask: Ask) -> socket.socket:
    """Return an open socket to the head at `url`. The head has proven itself by the
    challenge that `ask` creates for its address.

    Raises: OSError (TimeoutError is one), WrongHead, Unauthorised.
    """
    parsed_url = urlsplit(url)
    loop = asyncio.get_running_loop()
    host, port = parsed_url.hostname or "", parsed_url.port or 80
    async with asyncio.timeout(PROOF_SECONDS):
        connection = await _connected(loop, host, port)
        try:
            challenge = ask(connection.getpeername()[:2])
            await loop.sock_sendall(connection, challenge.request)
            while not challenge.feed(await loop.sock_recv(connection, PIECE_BYTES)):
                pass
        except BaseException:
            connection.close()
            raise
    return connection


async def _connected(
    loop: asyncio.AbstractEventLoop, host: str, port: int
) -> socket.socket:
    """Connect to the first address of the host that accepts.

    Raises: OSError of the last address if all fail.
    """
    failure: OSError = ConnectionError(f"no address of {host} accepts connections")
    for family, address in _addresses(host, port):
        connection = socket.socket(family)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, address)
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError):
                raise
            failure = error
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
    raise failure


def _addresses(host: str, port: int) -> list[tuple[int, Address]]:
    """Return (address family, address) for each address of the host. The host must be
    localhost or an IP address, so no name server is queried and nothing blocks."""
    if host == "localhost":
        return [(socket.AF_INET6, ("::1", port)), (socket.AF_INET, ("127.0.0.1", port))]
    return [(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port))]
