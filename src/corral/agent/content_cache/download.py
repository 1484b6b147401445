"""Download of one file: continued by ranges, verified by its hash, and from the first
of several places that gives it whole."""

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from corral.agent.content_cache.manifest import SHA256, ContentFile, ListedFile
from corral.agent.content_cache.refusals import (
    ContentRefused,
    ContentTrouble,
    FetchCancelled,
    RangeRefused,
)
from corral.agent.content_cache.source import ByteStream
from corral.agent.content_cache.store import CHUNK_BYTES, ContentStore

Read = Callable[[ListedFile, int], AbstractContextManager[ByteStream]]
OUTSIDE_TRIES: Final = 5
FIRST_DELAY_SECONDS: Final = 0.2
FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT)


class ContentCorrupt(ContentTrouble):
    """The bytes that have arrived do not have the hash of the file."""

    code = "content_corrupt"


class FileDownload:
    """Download of the files of one listing into the store.

    Args:
        origin: Of the listing.
        advance: Called with the bytes that have arrived; negative if some are fetched
            again.
        is_stopped: Whether to give up, because nothing needs the content any more.
    """

    def __init__(
        self,
        store: ContentStore,
        origin: str,
        *,
        advance: Callable[[int], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._store = store
        self._origin = origin
        self._advance = advance
        self._is_stopped = is_stopped

    def partial_of(self, file: ListedFile) -> Path:
        """Return where the beginning of the file lies."""
        scope = "" if file.sha256 else f"{self._origin} {file.path} "
        return self._store.partial(scope + file.tag)

    def fetch(
        self, file: ListedFile, peers: Sequence[Read], outside: Read
    ) -> ContentFile:
        """Fetch the file from the first peer that gives it whole, else from outside.

        Raises: ContentRefused, ContentTrouble, FetchCancelled.
        """
        with suppress(ContentTrouble):
            return self.fetch_from_peers(file, peers)
        delay_seconds = FIRST_DELAY_SECONDS
        for is_last in [False] * (OUTSIDE_TRIES - 1) + [True]:
            try:
                return self._fetch_from(outside, file)
            except ContentTrouble:
                if is_last:
                    raise
            self._check_stopped()
            time.sleep(delay_seconds)
            delay_seconds *= 2
        raise AssertionError("the last try returns or raises")

    def fetch_from_peers(self, file: ListedFile, peers: Sequence[Read]) -> ContentFile:
        """Fetch the file from the first peer that gives it whole.

        Raises: ContentTrouble if none does; FetchCancelled.
        """
        for read in peers:
            with suppress(ContentRefused, ContentTrouble):
                return self._fetch_from(read, file)
        raise ContentTrouble(f"no node of the cluster has {file.path}")

    def _fetch_from(self, read: Read, file: ListedFile) -> ContentFile:
        partial = self.partial_of(file)
        try:
            with partial.open("a+b") as target:
                # another agent with the same folder waits until the file is whole
                fcntl.flock(target, fcntl.LOCK_EX)
                return self._fetch_into(target, partial, read, file)
        except OSError as error:
            if error.errno in FULL_DISK:
                self._forget(partial)
                raise ContentTrouble(
                    f"the disk of the node is full, so {file.path} cannot be stored; "
                    "what the cache had is still there",
                    hint="run: corral model ls; corral model rm NAME",
                ) from error
            raise ContentTrouble(f"{file.path} cannot be stored: {error}") from error

    def _fetch_into(
        self, target: BinaryIO, partial: Path, read: Read, file: ListedFile
    ) -> ContentFile:
        if file.sha256 and self._store.has_blob(file.sha256, file.size):
            return _whole(file, file.sha256, self._store)
        offset = target.seek(0, os.SEEK_END)
        if file.size is None or offset != file.size:
            self._receive(target, read, file, offset)
        target.flush()
        try:
            sha256 = self._verified_sha256(target, file)
        except ContentCorrupt:
            self._forget(partial)
            raise
        self._store.take_in(partial, sha256)
        return _whole(file, sha256, self._store)

    def _receive(
        self, target: BinaryIO, read: Read, file: ListedFile, offset: int
    ) -> None:
        """Append the rest of the file. Raises: ContentTrouble if it comes to an end too
        early; what has arrived stays."""
        if file.size is not None and offset > file.size:
            self._advance(-offset)
            target.truncate(0)
            offset = 0
        try:
            with read(file, offset) as stream:
                if stream.offset != offset:
                    self._advance(-offset)
                    target.truncate(0)
                    offset = 0
                for chunk in stream.chunks:
                    self._check_stopped()
                    target.write(chunk)
                    offset += len(chunk)
                    self._advance(len(chunk))
                total = file.size if file.size is not None else stream.total
        except RangeRefused:
            if not offset:
                raise
            return  # it is whole, or its hash shows that it is of another file
        if total is not None and offset < total:
            raise ContentTrouble(
                f"{file.path} ended after {offset:,} of {total:,} bytes"
            )

    def _verified_sha256(self, target: BinaryIO, file: ListedFile) -> str:
        """Return the SHA-256 of the file. Raises: ContentCorrupt."""
        size = target.seek(0, os.SEEK_END)
        target.seek(0)
        sha256 = hashlib.sha256()
        git_sha1 = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        while chunk := target.read(CHUNK_BYTES):
            self._check_stopped()
            sha256.update(chunk)
            if file.git_sha1:
                git_sha1.update(chunk)
        digest = sha256.hexdigest()
        is_right = (
            file.size in (None, size)
            and file.sha256 in ("", digest)
            and file.git_sha1 in ("", git_sha1.hexdigest())
        )
        if not is_right:
            self._advance(-size)
            expected = file.sha256 or file.git_sha1 or f"{file.size:,} bytes"
            raise ContentCorrupt(
                f"{file.path} does not have its hash: expected {expected}, and the "
                f"bytes that arrived have SHA-256 {digest}"
            )
        return digest

    def _check_stopped(self) -> None:
        if self._is_stopped():
            raise FetchCancelled("nothing needs the content any more")

    def _forget(self, partial: Path) -> None:
        partial.unlink(missing_ok=True)


def _whole(file: ListedFile, sha256: str, store: ContentStore) -> ContentFile:
    assert SHA256.fullmatch(sha256)
    size = store.blob(sha256).stat().st_size
    return ContentFile(path=file.path, size=size, sha256=sha256, tag=file.tag)
