"""Backups sealed for a recipient: X25519, HKDF-SHA256 and ChaCha20-Poly1305 in chunks.

A sealed file consists of the first line, an ephemeral public key, and chunks. The nonce
of a chunk holds its number and whether it is the last one, so a chunk that was altered,
moved, left out or cut off is detected. Only the identity opens the file; anyone with
the recipient's key can create such a file.
"""

import io
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from corral.domain.errors import Conflict, SpecInvalid

FIRST_LINE: Final = b"corral-sealed-backup-1\n"
CHUNK_BYTES: Final = 64 * 1024
TAG_BYTES: Final = 16
KEY_BYTES: Final = 32
RECIPIENT: Final = "corral-recipient-1:"
IDENTITY: Final = "corral-identity-1:"
_LAST: Final = b"\x01"
_MORE: Final = b"\x00"


class SealBroken(ValueError):
    """A sealed file was altered or damaged, or is sealed for another recipient."""


def generate(file: Path) -> str:
    """Write a new identity (private key) into the file, readable only by its owner.
    Return its recipient (public key).

    Raises: Conflict if a file of this name exists, or it cannot be created.
    """
    key = X25519PrivateKey.generate()
    recipient = RECIPIENT + _encode_base64url(key.public_key().public_bytes_raw())
    content = f"# opens backups made with --recipient {recipient}\n"
    content += f"{IDENTITY}{_encode_base64url(key.private_bytes_raw())}\n"
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Conflict(
            f"the identity cannot be written to {file}: {error.strerror}",
            hint="name a file that does not exist yet: corral key generate FILE",
        ) from None
    with os.fdopen(opened, "w") as identity_file:
        identity_file.write(content)
        identity_file.flush()
        os.fsync(identity_file.fileno())
    return recipient


def recipient_of(given_text: str) -> X25519PublicKey:
    """Return the recipient's public key. The text is the key itself, or the path of a
    file that holds it.

    Raises: SpecInvalid.
    """
    text = (
        given_text
        if given_text.startswith(RECIPIENT)
        else _read_key_line(Path(given_text), RECIPIENT)
    )
    return X25519PublicKey.from_public_bytes(
        _decode_key_bytes(text, RECIPIENT, given_text)
    )


def identity_of(file: Path) -> X25519PrivateKey:
    """Return the identity in the file. Raises: SpecInvalid."""
    raw = _decode_key_bytes(_read_key_line(file, IDENTITY), IDENTITY, str(file))
    return X25519PrivateKey.from_private_bytes(raw)


def is_sealed(file: IO[bytes]) -> bool:
    """Return whether the file is a sealed backup, by its first line. The file is
    rewound to its beginning."""
    header = file.read(len(FIRST_LINE))
    file.seek(0)
    return header == FIRST_LINE


class _Sealing(io.RawIOBase):
    """Writer that encrypts what it is given in chunks. `finish` writes the last chunk."""

    def __init__(self, out: IO[bytes], cipher: ChaCha20Poly1305) -> None:
        self._out = out
        self._cipher = cipher
        self._held = bytearray()
        self._number = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        self._held += piece
        while len(self._held) > CHUNK_BYTES:  # one that is full may be the last
            self._send(bytes(self._held[:CHUNK_BYTES]), _MORE)
            del self._held[:CHUNK_BYTES]
        return len(piece)

    def finish(self) -> None:
        self._send(bytes(self._held), _LAST)

    def _send(self, chunk: bytes, last: bytes) -> None:
        self._out.write(
            self._cipher.encrypt(_chunk_nonce(self._number, last), chunk, FIRST_LINE)
        )
        self._number += 1


@contextmanager
def sealed(out: IO[bytes], recipient: X25519PublicKey) -> Iterator[IO[bytes]]:
    """Provide a file whose content is encrypted for the recipient and written to `out`.
    If the body fails, the incomplete result cannot be opened."""
    ephemeral = X25519PrivateKey.generate()
    own_key = ephemeral.public_key().public_bytes_raw()
    out.write(FIRST_LINE + own_key)
    cipher = _cipher(ephemeral.exchange(recipient), own_key, recipient)
    sealing = _Sealing(out, cipher)
    yield sealing  # type: ignore[misc]
    sealing.finish()


def open_sealed(source: IO[bytes], identity: X25519PrivateKey, into: IO[bytes]) -> None:
    """Decrypt the sealed file into `into`.

    Raises: SealBroken. The bytes that were written before it must not be used.
    """
    source.read(len(FIRST_LINE))
    ephemeral = source.read(KEY_BYTES)
    if len(ephemeral) != KEY_BYTES:
        raise SealBroken("the file is incomplete")
    try:
        shared_secret = identity.exchange(X25519PublicKey.from_public_bytes(ephemeral))
    except ValueError as error:  # a point that agrees on nothing secret
        raise SealBroken(
            "the public key at the beginning of the file is not valid"
        ) from error
    cipher = _cipher(shared_secret, ephemeral, identity.public_key())
    chunk, number = source.read(CHUNK_BYTES + TAG_BYTES), 0
    while True:
        following = source.read(CHUNK_BYTES + TAG_BYTES)
        try:
            nonce = _chunk_nonce(number, _MORE if following else _LAST)
            into.write(cipher.decrypt(nonce, chunk, FIRST_LINE))
        except InvalidTag as error:
            reason = (
                "the file is incomplete or was changed"
                if number
                else "it was encrypted for another identity, or was changed"
            )
            raise SealBroken(reason) from error
        if not following:
            return
        chunk, number = following, number + 1


def _cipher(
    shared: bytes, ephemeral: bytes, recipient: X25519PublicKey
) -> ChaCha20Poly1305:
    salt = ephemeral + recipient.public_bytes_raw()
    return ChaCha20Poly1305(HKDF(SHA256(), KEY_BYTES, salt, FIRST_LINE).derive(shared))


def _chunk_nonce(number: int, last: bytes) -> bytes:
    return number.to_bytes(11, "big") + last


def _encode_base64url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _read_key_line(file: Path, begins: str) -> str:
    try:
        lines = file.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise SpecInvalid(
            f"{file} is not a key, and cannot be read as a key file: {error}",
            hint="create a key pair: corral key generate FILE",
        ) from None
    lines_found = [line.strip() for line in lines if line.strip().startswith(begins)]
    if len(lines_found) != 1:
        raise SpecInvalid(
            f"{file} contains {len(lines_found)} lines that begin with {begins}; "
            "exactly one is required",
            hint="create a key pair: corral key generate FILE",
        )
    return lines_found[0]


def _decode_key_bytes(text: str, begins: str, given_text: str) -> bytes:
    encoded = text.removeprefix(begins)
    try:
        raw = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError:
        raw = b""
    if len(raw) != KEY_BYTES:
        raise SpecInvalid(
            f"{given_text[:80]} does not contain a complete key of {KEY_BYTES} bytes",
            hint="copy the complete key, or create a key pair: corral key generate "
            "FILE",
        )
    return raw
