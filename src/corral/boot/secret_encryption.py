"""Encryption of stored secrets: AES-256-GCM under keys of a file; each value is bound
to its name."""

import hashlib
import hmac
import os
import stat
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from corral.boot.settings import once, write_atomically
from corral.domain.errors import Trouble
from corral.domain.users import HEAD, AuditEntry, SpeakerKind

KEY_BYTES: Final = 32
# of a key's digest: says which key sealed a value, and nothing of the key
ID_BYTES: Final = 8
NONCE_BYTES: Final = 12
SIGNED: Final = b"corral-sign-1\x00"  # begins what is signed: it is no sealed value
LINKED: Final = b"corral-audit-1\x00"  # begins a link of the audit log that is sealed
FORM: Final = b"corral-seal-1\x00"  # begins every sealed value, and what it is bound to


class KeyTrouble(Trouble):
    """A secret cannot be decrypted with the keys of this head."""

    code = "key_trouble"


class KeyRing:
    """The keys of one cluster, newest first. The newest key encrypts; every key
    decrypts.

    The file holds one key a line, in hexadecimal digits, and is readable by its owner
    alone. On the line of a key that was replaced, the key is followed by the time of
    its replacement, in seconds since 1970.
    """

    def __init__(
        self,
        path: Path,
        keys: tuple[bytes, ...],
        retired: Mapping[bytes, float] | None = None,
    ) -> None:
        self._path = path
        self._keys = keys
        self._retired = dict(retired or {})  # wall clock of when a key was replaced

    @classmethod
    def load(cls, path: Path) -> "KeyRing":
        """Return the keys in the file; the first call creates the file with a new key.

        Raises: KeyTrouble when the file is readable by others, or holds no key.
        """
        try:
            text = once(path, os.urandom(KEY_BYTES).hex().encode())
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as error:
            raise KeyTrouble(
                f"the key file {path} cannot be used: {error.strerror}",
                hint=f"check that the folder {path.parent} exists and belongs to you",
            ) from error
        if mode & 0o077:
            raise KeyTrouble(
                f"other users may read the key file {path} (mode {mode:04o})",
                hint=f"run: chmod 600 {path}; if others have read the file, set all "
                "secrets again",
            )
        _fsync_directory(path.parent)
        return cls(path, *_parse_key_file(path, text))

    @property
    def path(self) -> Path:
        return self._path

    @property
    def check(self) -> str:
        """Return the id of the newest key, which encrypts now. Heads compare this id;
        it reveals nothing of the key."""
        return _key_id_bytes(self._keys[0]).hex()

    def has(self, check: str) -> bool:
        return any(_key_id_bytes(key).hex() == check for key in self._keys)

    def seal(self, name: str, value: bytes) -> bytes:
        """Return the value, encrypted by the newest key. Only these keys can decrypt
        it, and only under this name."""
        key, nonce = self._keys[0], os.urandom(NONCE_BYTES)
        body = AESGCM(key).encrypt(nonce, value, FORM + name.encode())
        return FORM + _key_id_bytes(key) + nonce + body

    def open(self, name: str, sealed: bytes) -> bytes:
        """Return the decrypted value that was sealed under this name.

        Raises: KeyTrouble when none of the keys sealed it, or it was changed since.
        """
        reset_hint = f"set the secret again: corral secret set {name}"
        rest = sealed.removeprefix(FORM)
        if rest == sealed or len(rest) < ID_BYTES + NONCE_BYTES:
            raise KeyTrouble(
                f"the secret {name} has a format that this version cannot decrypt",
                hint=reset_hint,
            )
        id, rest = rest[:ID_BYTES], rest[ID_BYTES:]
        key = next((key for key in self._keys if _key_id_bytes(key) == id), None)
        if key is None:
            raise KeyTrouble(
                f"the secret {name} was encrypted with a key that is not in "
                f"{self._path}",
                hint="restore the key file of this store from a backup, or "
                f"{reset_hint}",
            )
        try:
            nonce, body = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
            return AESGCM(key).decrypt(nonce, body, FORM + name.encode())
        except InvalidTag as error:
            raise KeyTrouble(
                f"the secret {name} is damaged, or was encrypted under another name",
                hint=reset_hint,
            ) from error

    def is_current(self, sealed: bytes) -> bool:
        """Return whether the value was encrypted with the newest key."""
        return sealed.removeprefix(FORM)[:ID_BYTES] == _key_id_bytes(self._keys[0])

    def sign(self, text: str) -> str:
        """Return the signature of the text by the newest key: 64 hexadecimal digits."""
        return self.signatures(text)[0]

    def signatures(self, text: str, made_at: float = 0.0) -> list[str]:
        """Return the signatures of the text by the newest key, then by each earlier key
        that was in use at `made_at`."""
        newest_key, *earlier_keys = self._keys
        known_keys = [
            newest_key,
            *(key for key in earlier_keys if self._retired.get(key, inf) >= made_at),
        ]
        signed = SIGNED + text.encode()
        return [hmac.digest(key, signed, "sha256").hex() for key in known_keys]

    def seal_link(self, link: str) -> str:
        """Return the seal of one link of the audit log's hash chain: the newest key's
        id, and the HMAC of the link under that key."""
        key = self._keys[0]
        return f"{_key_id_bytes(key).hex()}:{_link_mac(key, link)}"

    def check_link(self, link: str, seal: str) -> bool | None:
        """Return whether `seal` is the correct seal of this link of the audit log's
        hash chain; None if this head does not have the key that made the seal."""
        id, _, mac = seal.partition(":")
        key = next((key for key in self._keys if _key_id_bytes(key).hex() == id), None)
        return (
            None
            if key is None
            else hmac.compare_digest(mac.encode(), _link_mac(key, link).encode())
        )

    # -- rotation: boot/key_rotation.py ----------------------------------------------------------

    def add(self, key: bytes) -> str:
        """Add a key that decrypts but does not encrypt yet. Returns: its id."""
        if not self.has(_key_id_bytes(key).hex()):
            self._keep((*self._keys, key))
        return _key_id_bytes(key).hex()

    def wrap(self, check: str) -> bytes:
        """Return the key with the id `check`, encrypted with the newest key, so that
        other heads that have the newest key can read it."""
        return self.seal(f"key {check}", self._key_by_check(check))

    def unwrap(self, check: str, wrapped: bytes) -> None:
        """Add the key with the id `check`, which another head encrypted by `wrap`.
        Raises: KeyTrouble."""
        self.add(self.open(f"key {check}", wrapped))

    def turn(self, check: str, at: float) -> None:
        """Make the key with the id `check` the newest one, which encrypts from now on.
        Earlier keys still decrypt and verify.

        `at`: time at which the earlier keys count as replaced.
        """
        newest_key = self._key_by_check(check)
        earlier_keys = [key for key in self._keys if key != newest_key]
        self._retired.pop(newest_key, None)
        for key in earlier_keys:
            self._retired.setdefault(key, at)
        self._keep((newest_key, *earlier_keys))

    def forget_retired(self, before: float) -> int:
        """Remove keys that were replaced before this moment. Returns: the number of
        removed keys."""
        kept_keys = tuple(
            key for key in self._keys if self._retired.get(key, inf) >= before
        )
        forgotten_count = len(self._keys) - len(kept_keys)
        if forgotten_count:
            self._keep(kept_keys)
        return forgotten_count

    def _key_by_check(self, check: str) -> bytes:
        return next(key for key in self._keys if _key_id_bytes(key).hex() == check)

    def _keep(self, keys: tuple[bytes, ...]) -> None:
        self._retired = {
            key: retired_at for key, retired_at in self._retired.items() if key in keys
        }
        lines = (
            f"{key.hex()} {self._retired[key]:.0f}"
            if key in self._retired
            else key.hex()
            for key in keys
        )
        write_atomically(self._path, "\n".join(lines))
        _fsync_directory(self._path.parent)
        self._keys = keys


def rotation_entry(before: str, fresh: str, now: float) -> AuditEntry:
    """Return the entry of the audit log for a key rotation from the key id `before` to
    the key id `fresh`. The new key seals this entry and thereby all entries before it.
    """
    detail = f"from {before} to {fresh}"
    return AuditEntry(
        at=now,
        by=HEAD,
        token=None,
        what="key.rotate",
        on="key",
        detail=detail,
        kind=SpeakerKind.HEAD,
    )


def _link_mac(key: bytes, link: str) -> str:
    return hmac.new(key, LINKED + link.encode(), hashlib.sha256).hexdigest()


def _key_id_bytes(key: bytes) -> bytes:
    return hashlib.sha256(b"corral-key-id\x00" + key).digest()[:ID_BYTES]


def _parse_key_file(
    path: Path, text: bytes
) -> tuple[tuple[bytes, ...], dict[bytes, float]]:
    retired: dict[bytes, float] = {}
    try:
        lines = [line.split() for line in text.decode().splitlines() if line.strip()]
        keys = tuple(bytes.fromhex(line[0]) for line in lines)
        retired = {
            key: float(line[1])
            for key, line in zip(keys, lines, strict=True)
            if line[1:]
        }
    except ValueError:
        keys = ()
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise KeyTrouble(
            f"the key file {path} does not contain a valid key",
            hint="restore the key file of this store from a backup",
        )
    return keys, retired


def _fsync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
