"""Encryption of what the nodes of a batch job send each other: AES-256-GCM with counted
nonces."""

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from corral.agent.batch.frames import Tampered

TAG_BYTES: Final = 16
NONCE_BYTES: Final = 12


class Encryption:
    """AES-256-GCM encryption of the messages of one connection; implements Seal. Each
    key is used for one direction of one connection, so no nonce repeats."""

    extra_bytes = TAG_BYTES

    def __init__(self, send_key: bytes, receive_key: bytes) -> None:
        self._send, self._receive = AESGCM(send_key), AESGCM(receive_key)
        self._sent = self._received = 0

    def close(self, sizes: bytes, body: bytes) -> bytes:
        sealed = self._send.encrypt(
            self._sent.to_bytes(NONCE_BYTES, "big"), body, sizes
        )
        self._sent += 1
        return sealed

    def open(self, sizes: bytes, sealed: bytes) -> bytes:
        try:
            nonce = self._received.to_bytes(NONCE_BYTES, "big")
            body = self._receive.decrypt(nonce, sealed, sizes)
        except InvalidTag:
            raise Tampered from None
        self._received += 1
        return body
