"""Handshake between the two nodes of a link check: each proves that the head has sent
it to the check.

Both nodes have the check-up's secret. Each sends a nonce, and answers the other's nonce
with an HMAC. Another host on the network can neither take the place of a node nor delay
the leader.
"""

import hmac
import secrets
import socket
import time
from contextlib import suppress
from typing import Final

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
ALONE_SECONDS: Final = 2.0  # that one dialler may take while others wait


class NotProven(ConnectionError):
    """Error: the other end does not know the check-up's secret."""


def greet(talk: socket.socket, secret: str, *, leads: bool) -> None:
    """Authenticate both ends to each other by the secret. `leads`: whether this end is
    the leader.

    Raises: NotProven when the other end does not know the secret; another OSError when
    the other end leaves or does not answer.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    talk.sendall(nonce)
    peer_nonce = _receive_exactly(talk, NONCE_BYTES)
    own_name, peer_name = (b"leads", b"follows") if leads else (b"follows", b"leads")
    talk.sendall(_handshake_proof(secret, own_name, peer_nonce, nonce))
    if not hmac.compare_digest(
        _receive_exactly(talk, PROOF_BYTES),
        _handshake_proof(secret, peer_name, nonce, peer_nonce),
    ):
        raise NotProven("the other end did not prove that it is the node of this check")


def accepted(server: socket.socket, secret: str, seconds: float) -> socket.socket:
    """Accept connections, and return the first one whose other end proves that it knows
    the secret.

    Raises: OSError when none does within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while (remaining_seconds := deadline - time.monotonic()) > 0:
        server.settimeout(remaining_seconds)
        talk, _ = server.accept()
        talk.settimeout(min(ALONE_SECONDS, max(remaining_seconds, 0.1)))
        with suppress(OSError):
            greet(talk, secret, leads=True)
            return talk
        talk.close()
    raise TimeoutError(f"the other node did not connect within {seconds:g} s")


def dialled(where: tuple[str, int], secret: str, seconds: float) -> socket.socket:
    """Connect to the leader at `where` and authenticate; return the connection. Raises:
    NotProven, or another OSError."""
    talk = socket.create_connection(where, timeout=seconds)
    try:
        greet(talk, secret, leads=False)
    except OSError:
        talk.close()
        raise
    return talk


def _handshake_proof(secret: str, role: bytes, asked: bytes, own: bytes) -> bytes:
    return hmac.digest(secret.encode(), b"corral link " + role + asked + own, "sha256")


def _receive_exactly(talk: socket.socket, count: int) -> bytes:
    buffer = bytearray()
    while len(buffer) < count:
        piece = talk.recv(count - len(buffer))
        if not piece:
            raise ConnectionError("the other node closed the connection")
        buffer += piece
    return bytes(buffer)
