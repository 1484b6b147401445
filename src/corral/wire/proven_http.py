"""Connections of http.client on which the head proves itself first."""

import http.client
import socket
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from corral.wire.head_proof import (
    PIECE_BYTES,
    PROOF_SECONDS,
    Address,
    Challenge,
    needs_proof,
)


class ProvenConnection(http.client.HTTPConnection):
    """Plain HTTP to a head on loopback; each connection begins with the proof.

    Args:
        url: Address of the head.
        token: Token that will be sent.
        timeout: Seconds that each step may take.
    """

    def __init__(self, url: str, token: str, timeout: float) -> None:
        parsed_url = urlsplit(url)
        super().__init__(parsed_url.hostname or "", parsed_url.port, timeout=timeout)
        self._url = url
        self._token = token

    def connect(self) -> None:
        """Open the connection, and let the head prove itself.

        Raises: OSError, WrongHead, Unauthorised.
        """
        super().connect()
        try:
            address = self.sock.getpeername()[:2]
            prove(self.sock, Challenge.by_token(self._url, self._token, address))
        except BaseException:
            self.close()
            raise


def connection_to(
    url: str, token: str, *, timeout: float, trusted: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    """Return a connection, not opened yet, on which the token may be sent.

    Raises: InsecureHead for another machine without TLS.
    """
    parsed_url = urlsplit(url)
    host = parsed_url.hostname or ""
    if parsed_url.scheme == "https":
        return http.client.HTTPSConnection(
            host, parsed_url.port, timeout=timeout, context=trusted
        )
    if needs_proof(url):
        return ProvenConnection(url, token, timeout)
    return http.client.HTTPConnection(host, parsed_url.port, timeout=timeout)


def proven_connection(url: str, ask: Callable[[Address], Challenge]) -> socket.socket:
    """Return an open connection to the head at `url`. The head has proven itself by the
    challenge that `ask` creates for its address.

    Raises: OSError, WrongHead, Unauthorised.
    """
    parsed_url = urlsplit(url)
    address = (parsed_url.hostname or "", parsed_url.port or 80)
    connection = socket.create_connection(address, PROOF_SECONDS)
    try:
        prove(connection, ask(connection.getpeername()[:2]))
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def prove(connection: socket.socket, challenge: Challenge) -> None:
    """Send the challenge on this connection, and wait until the head has proven itself.

    Raises: OSError, WrongHead, Unauthorised.
    """
    connection.sendall(challenge.request)
    while not challenge.feed(connection.recv(PIECE_BYTES)):
        pass
