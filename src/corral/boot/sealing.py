"""Secrets at rest: AES-256-GCM under keys of a file, each value bound to its name."""

import hashlib
import hmac
import os
import stat
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from corral.boot.settings import once, write_atomically
from corral.domain.errors import Trouble
from corral.ports.store import Store

KEY_BYTES: Final = 32
ID_BYTES: Final = 8  # of a key's digest: says which key sealed a value, and nothing of the key
NONCE_BYTES: Final = 12
SIGNED: Final = b"corral-sign-1\x00"  # begins what is signed: it is no sealed value
FORM: Final = b"corral-seal-1\x00"  # begins every sealed value, and what it is bound to


class KeyTrouble(Trouble):
    """A secret cannot be opened with the keys that are here."""

    code = "key_trouble"


class KeyRing:
    """The keys of one cluster, the newest first: it seals; all of them open.

    The file holds one key a line, in hexadecimal digits, readable by its owner alone.
    """

    def __init__(self, path: Path, keys: tuple[bytes, ...]) -> None:
        self._path = path
        self._keys = keys

    @classmethod
    def load(cls, path: Path) -> "KeyRing":
        """The keys in the file; the first use makes it.

        Raises: KeyTrouble when the file is readable by others, or holds no key.
        """
        try:
            text = once(path, os.urandom(KEY_BYTES).hex().encode())
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as error:
            raise KeyTrouble(
                f"the key file {path} cannot be used: {error.strerror}",
                hint=f"see that {path.parent} exists and is yours",
            ) from error
        if mode & 0o077:
            raise KeyTrouble(
                f"the key file {path} may be read by others (mode {mode:04o})",
                hint=f"run: chmod 600 {path}; and set the secrets anew if others could see it",
            )
        _sync(path.parent)
        return cls(path, _parse(path, text))

    @property
    def path(self) -> Path:
        return self._path

    @property
    def check(self) -> str:
        """Says which key this is, and nothing of it: heads compare it."""
        return _id(self._keys[-1]).hex()

    def seal(self, name: str, value: bytes) -> bytes:
        """The value so that only these keys open it, and only under this name."""
        key, nonce = self._keys[0], os.urandom(NONCE_BYTES)
        body = AESGCM(key).encrypt(nonce, value, FORM + name.encode())
        return FORM + _id(key) + nonce + body

    def open(self, name: str, sealed: bytes) -> bytes:
        """The value that was sealed under this name.

        Raises: KeyTrouble when none of the keys sealed it, or it is not what was sealed.
        """
        again = f"set it again: corral secret set {name}"
        rest = sealed.removeprefix(FORM)
        if rest == sealed or len(rest) < ID_BYTES + NONCE_BYTES:
            raise KeyTrouble(f"the secret {name} is not sealed as this corral seals", hint=again)
        id, rest = rest[:ID_BYTES], rest[ID_BYTES:]
        key = next((key for key in self._keys if _id(key) == id), None)
        if key is None:
            raise KeyTrouble(
                f"the secret {name} was sealed with a key that is not in {self._path}",
                hint=f"put the key file that belongs to this store back, or {again}",
            )
        try:
            nonce, body = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
            return AESGCM(key).decrypt(nonce, body, FORM + name.encode())
        except InvalidTag as error:
            raise KeyTrouble(
                f"the secret {name} is damaged, or was sealed under another name", hint=again
            ) from error

    def sign(self, text: str) -> str:
        """64 hexadecimal digits that only the newest key makes of the text."""
        return hmac.new(self._keys[0], SIGNED + text.encode(), hashlib.sha256).hexdigest()

    async def rotate(self, store: Store) -> int:
        """Seal every secret with a fresh key, then forget the others. How many were sealed.

        No secret may be set meanwhile. When it is cut short, nothing is lost: the file holds the
        old keys until the last secret is sealed anew. Raises: KeyTrouble, StoreTrouble.
        """
        self._keep((os.urandom(KEY_BYTES), *self._keys))
        listed = await store.secrets()
        for name, by, at in listed:
            if (sealed := await store.secret(name)) is not None:
                fresh = self.seal(name, self.open(name, sealed))
                await store.put_secret(name, fresh, by=by, at=at)
        self._keep(self._keys[:1])
        return len(listed)

    def _keep(self, keys: tuple[bytes, ...]) -> None:
        write_atomically(self._path, "\n".join(key.hex() for key in keys))
        _sync(self._path.parent)
        self._keys = keys


def _id(key: bytes) -> bytes:
    return hashlib.sha256(b"corral-key-id\x00" + key).digest()[:ID_BYTES]


def _parse(path: Path, text: bytes) -> tuple[bytes, ...]:
    try:
        keys = tuple(bytes.fromhex(line) for line in text.decode().split())
    except ValueError:
        keys = ()
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise KeyTrouble(
            f"the key file {path} holds no key",
            hint="put the key file that belongs to this store back from a backup",
        )
    return keys


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
