"""Messages over a socket: each a JSON object and bytes; and the proof that both ends belong to one
attempt, by a key that neither sends."""

import hashlib
import hmac
import json
import os
import socket
import struct
import threading
from contextlib import suppress
from typing import Any, Final

MOST_BYTES: Final = 16 * 1024 * 1024
GREETING_SECONDS: Final = 20.0
_SIZES: Final = struct.Struct(">II")
_PROOF_BYTES: Final = 32
Message = dict[str, Any]


class Stranger(Exception):
    """The other end has not the key of the attempt."""


class Frames:
    """One end. Any thread may send; one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: Message, data: bytes = b"") -> None:
        """Raises: OSError when the other end is gone."""
        head = json.dumps(message, separators=(",", ":")).encode()
        with self._sending:
            self._connection.sendall(_SIZES.pack(len(head), len(data)) + head + data)

    def receive(self) -> tuple[Message, bytes] | None:
        """The next message; None when there comes no more. Raises: ValueError for what is none."""
        try:
            sizes = self._exactly(_SIZES.size)
            head, data = _SIZES.unpack(sizes)
            if head + data > MOST_BYTES:
                raise ValueError(f"a message of {head + data:,} bytes")
            message: Message = json.loads(self._exactly(head))
            return message, self._exactly(data)
        except (EOFError, OSError):
            return None

    def close(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            piece = self._connection.recv(count - len(found))
            if not piece:
                raise EOFError
            found += piece
        return bytes(found)

    def greet(self, key: bytes, *, own: bytes, other: bytes) -> None:
        """Each side proves the key over what the other has drawn, and over its own part in the
        talk. Raises: Stranger, OSError, EOFError."""
        self._connection.settimeout(GREETING_SECONDS)
        drawn = os.urandom(_PROOF_BYTES)
        self._connection.sendall(drawn)
        theirs = self._exactly(_PROOF_BYTES)
        self._connection.sendall(_proof(key, own, theirs))
        if not hmac.compare_digest(self._exactly(_PROOF_BYTES), _proof(key, other, drawn)):
            raise Stranger("it has not the key of this attempt")
        self._connection.settimeout(None)


def _proof(key: bytes, part: bytes, drawn: bytes) -> bytes:
    return hmac.new(key, part + drawn, hashlib.sha256).digest()


def key_of(token: str) -> bytes:
    """What all nodes of an attempt, and nobody else, can make of its own token."""
    return hashlib.sha256(b"corral steps\x00" + token.encode()).digest()
