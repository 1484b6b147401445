"""Writing of the files of one save into an object store."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from corral.domain.store_url import StoreUrl
from corral.store.object_client import (
    RETRY_SECONDS,
    STORE_VARIABLES,
    ObjectClient,
    StoreUnavailable,
)
from corral.train.save.bandwidth import bucket_of
from corral.train.save.file_writing import ALIGN_BYTES
from corral.train.save.manifest import FileEntry, digest

CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Limits of one rank's writing. `bytes_per_second` None: no cap."""

    retry_seconds: float = RETRY_SECONDS
    bytes_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectTarget:
    """The prefix below which the ranks write the files of one save."""

    url: StoreUrl
    limits: StoreLimits

    def create(self, name: str) -> "ObjectFile":
        """Create a file of the save."""
        return ObjectFile(name=name, target=self)

    def write(self, name: str, data: bytes) -> FileEntry:
        """Write a whole small file. Raises: StoreRefused, StoreUnavailable."""
        _pace(self.limits, len(data))
        client_of(self.url, self.limits).put(f"{self.url.key}/{name}", data)
        return FileEntry(name=name, size_bytes=len(data), sha256=digest(data))

    def sync(self) -> None:
        """Do nothing: objects are durable once they are written."""


@dataclass(slots=True, kw_only=True)
class ObjectFile:
    """A file of a save. It is uploaded when it is finished: until then, the memory of
    its parts must not change."""

    name: str
    target: ObjectTarget
    size: int = 0
    _parts: list[memoryview] = field(default_factory=list)

    def append(self, data: memoryview) -> int:
        """Add the bytes at the next aligned position of the file, and return this
        position."""
        padding = -self.size % ALIGN_BYTES
        if padding:
            self._parts.append(memoryview(bytes(padding)))
        offset = self.size + padding
        self._parts.append(data)
        self.size = offset + len(data)
        return offset

    def finish(self) -> FileEntry:
        """Upload the file, check its size in the store, and return its entry.

        Raises: StoreRefused, StoreUnavailable.
        """
        target = self.target
        client = client_of(target.url, target.limits)
        key = f"{target.url.key}/{self.name}"
        hasher = hashlib.sha256()

        def chunks() -> Iterator[bytes]:
            nonlocal hasher
            hasher = hashlib.sha256()  # of this try
            for part in self._parts:
                for start in range(0, len(part), CHUNK_BYTES):
                    chunk = bytes(part[start : start + CHUNK_BYTES])
                    _pace(target.limits, len(chunk))
                    hasher.update(chunk)
                    yield chunk

        client.upload(key, self.size, chunks)
        size = client.size(key)
        if size != self.size:
            raise StoreUnavailable(
                f"{target.url}/{self.name} has {size or 0} bytes after its upload instead "
                f"of {self.size}"
            )
        self._parts.clear()
        return FileEntry(
            name=self.name, size_bytes=self.size, sha256=hasher.hexdigest()
        )

    def close(self) -> None:
        """Give up the file: nothing of it was uploaded."""
        self._parts.clear()


def client_of(url: StoreUrl, limits: StoreLimits) -> ObjectClient:
    """Return this process's client of the bucket, with the credentials of its
    environment.

    Raises: Unsupported without obstore.
    """
    env = tuple(
        (name, os.environ[name]) for name in STORE_VARIABLES if name in os.environ
    )
    bucket = StoreUrl(f"{url.scheme}://{url.bucket}")
    return _client(bucket, env, limits.retry_seconds)


@cache
def _client(
    bucket: StoreUrl, env: tuple[tuple[str, str], ...], retry_seconds: float
) -> ObjectClient:
    return ObjectClient(url=bucket, env=dict(env), retry_seconds=retry_seconds)


def _pace(limits: StoreLimits, count: int) -> None:
    if limits.bytes_per_second is not None:
        bucket_of(limits.bytes_per_second).take(count)
