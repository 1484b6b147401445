"""Messages over a socket: each has a JSON object and bytes.

On a network connection, both ends first prove that they belong to one attempt, by a key
that neither sends. From then on each message is sealed by keys of this connection
alone, one for each direction, and by a counter. A message that was changed, repeated,
left out or inserted by another process ends the connection.
"""

import hashlib
import hmac
import json
import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

MOST_BYTES: Final = 16 * 1024 * 1024
GREETING_SECONDS: Final = 20.0
_SIZES: Final = struct.Struct(">II")
_PROOF_BYTES: Final = 32
# the parts in the talk between nodes of a batch job
FIRST: Final = b"first node, sealed"
HELPER: Final = b"helper, sealed"
Message = dict[str, Any]


class Stranger(Exception):
    """The other end of the connection does not have the key of the attempt."""


class Seal(Protocol):
    """Interface: protection of the messages of one connection, in both directions."""

    extra_bytes: int

    def close(self, sizes: bytes, body: bytes) -> bytes:
        """Return the protected form of the next message, `extra_bytes` longer than
        `body`."""

    def open(self, sizes: bytes, sealed: bytes) -> bytes:
        """Check the next message and return its unprotected body. Raises: Tampered."""


class Tampered(Exception):
    """Error: the message received is not the one that the other end sent next."""


class Signature:
    """Authentication without encryption, for messages that hold no secret. It uses only
    the standard library, so that it runs in a job's own Python."""

    extra_bytes = _PROOF_BYTES

    def __init__(self, send_key: bytes, receive_key: bytes) -> None:
        self._keys = send_key, receive_key
        self._sent = self._received = 0

    def close(self, sizes: bytes, body: bytes) -> bytes:
        tag = _message_tag(self._keys[0], self._sent, sizes, body)
        self._sent += 1
        return body + tag

    def open(self, sizes: bytes, sealed: bytes) -> bytes:
        body, tag = sealed[:-_PROOF_BYTES], sealed[-_PROOF_BYTES:]
        if not hmac.compare_digest(
            tag, _message_tag(self._keys[1], self._received, sizes, body)
        ):
            raise Tampered
        self._received += 1
        return body


class _NoSeal:
    """A Seal that protects nothing, for a Unix socket, which only the job's own account
    can open."""

    extra_bytes = 0

    def close(self, sizes: bytes, body: bytes) -> bytes:
        return body

    def open(self, sizes: bytes, sealed: bytes) -> bytes:
        return sealed


class Frames:
    """One end of a connection that carries messages with data. Any number of threads
    may send, but only one may receive."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._seal: Seal = _NoSeal()

    def send(self, message: Message, data: bytes = b"") -> None:
        """Send a message with its data.

        Raises: OSError when the other end is gone.
        """
        head = json.dumps(message, separators=(",", ":")).encode()
        with self._sending:
            sizes = _SIZES.pack(len(head), len(data))
            self._connection.sendall(sizes + self._seal.close(sizes, head + data))

    def receive(self) -> tuple[Message, bytes] | None:
        """Return the next message, or None when the connection has ended.

        Raises: ValueError for an invalid message.
        """
        try:
            sizes = self._receive_exactly(_SIZES.size)
            head, data = _SIZES.unpack(sizes)
            if head + data > MOST_BYTES:
                raise ValueError(
                    f"a message of {head + data:,} bytes is over the limit"
                )
            sealed = self._receive_exactly(head + data + self._seal.extra_bytes)
            body = self._seal.open(sizes, sealed)
            message: Message = json.loads(body[:head])
            return message, body[head:]
        except (EOFError, OSError):
            return None
        except Tampered:
            self.close()
            return None

    def close(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _receive_exactly(self, count: int) -> bytes:
        buffer = bytearray()
        while len(buffer) < count:
            piece = self._connection.recv(count - len(buffer))
            if not piece:
                raise EOFError
            buffer += piece
        return bytes(buffer)

    def greet(
        self,
        key: bytes,
        *,
        own: bytes,
        other: bytes,
        seal: Callable[[bytes, bytes], Seal],
    ) -> None:
        """Authenticate both ends, then protect all later messages. Each end proves that
        it has `key`, by a digest over the other end's random bytes and its own role.
        `own` and `other` are the two roles. `seal` creates the protection from two
        keys, one for each direction, which only this connection has.

        Raises: Stranger when the other end does not have the key; OSError, EOFError
        when the connection fails.
        """
        self._connection.settimeout(GREETING_SECONDS)
        drawn = os.urandom(_PROOF_BYTES)
        self._connection.sendall(drawn)
        peer_proof = self._receive_exactly(_PROOF_BYTES)
        self._connection.sendall(_handshake_proof(key, own, peer_proof))
        if not hmac.compare_digest(
            self._receive_exactly(_PROOF_BYTES), _handshake_proof(key, other, drawn)
        ):
            raise Stranger("the other end does not have the key of this attempt")
        self._connection.settimeout(None)
        self._seal = seal(
            _direction_key(key, own, drawn, peer_proof),
            _direction_key(key, other, peer_proof, drawn),
        )


def _direction_key(
    key: bytes, sender: bytes, of_sender: bytes, of_receiver: bytes
) -> bytes:
    signed = b"corral frames\x00" + sender + b"\x00" + of_sender + of_receiver
    return hmac.new(key, signed, hashlib.sha256).digest()


def _message_tag(key: bytes, number: int, sizes: bytes, body: bytes) -> bytes:
    return hmac.new(
        key, number.to_bytes(8, "big") + sizes + body, hashlib.sha256
    ).digest()


def _handshake_proof(key: bytes, part: bytes, drawn: bytes) -> bytes:
    return hmac.new(key, part + drawn, hashlib.sha256).digest()


def key_of(token: str) -> bytes:
    """Derive from the attempt's token the key that only the nodes of the attempt can
    derive."""
    return hashlib.sha256(b"corral steps\x00" + token.encode()).digest()
