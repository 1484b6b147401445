"""Manifests: the files of a tree, each by its SHA-256."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

import msgspec

from corral.agent.content_cache.refusals import ContentRefused

MOST_FILES: Final = 100_000
MOST_PATH_BYTES: Final = 1_000
SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class ListedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as its source lists it.

    Args:
        sha256: Its hash; "" if the source does not give it.
        git_sha1: Hash of the file as a blob of Git; "" if the source does not give it.
        etag: Identity of its version at the source, which is no hash of its content; ""
            without one.
        size: Its bytes; None if the source does not give them.
    """

    path: str
    size: int | None = None
    sha256: str = ""
    git_sha1: str = ""
    etag: str = ""

    @property
    def tag(self) -> str:
        """Return the identity of the file's version at its origin; "" without one."""
        if self.sha256:
            return f"sha256:{self.sha256}"
        if self.git_sha1:
            return f"git:{self.git_sha1}"
        return f"etag:{self.path}:{self.etag}:{self.size}" if self.etag else ""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The files to which a source leads now.

    Args:
        origin: Server from which they come. Two servers may give different files for
            one name.
        name: Source with its resolved revision.
        is_public: Anybody may read them at the origin.
        is_file: It is one file, which jobs get by its own path.
    """

    origin: str
    name: str
    files: tuple[ListedFile, ...]
    is_public: bool = True
    is_file: bool = False

    @property
    def key(self) -> str:
        return content_key(self.origin, self.name)

    @property
    def size_bytes(self) -> int:
        return sum(file.size or 0 for file in self.files)


class ContentFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a manifest. `tag`: as ListedFile.tag."""

    path: str
    size: int
    sha256: str
    tag: str = ""


class ContentManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Content that the node has completely.

    Args:
        sources: Sources, as specs write them, that led to it.
        readers: Users who have proven at the origin that they may read it; needed
            unless it is public.
        is_file: It is one file, which jobs get by its own path.
    """

    origin: str
    name: str
    files: tuple[ContentFile, ...]
    sources: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    is_public: bool = True
    is_pinned: bool = False
    is_file: bool = False

    @property
    def key(self) -> str:
        return content_key(self.origin, self.name)

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def blobs(self) -> frozenset[str]:
        return frozenset(file.sha256 for file in self.files)

    def may_read(self, user: str) -> bool:
        return self.is_public or user in self.readers


def content_key(origin: str, name: str) -> str:
    """Return the identity of content by its origin and name, equal on all nodes."""
    return hashlib.sha256(f"{origin}\n{name}".encode()).hexdigest()


def check_paths(files: Sequence[ListedFile], source: str) -> None:
    """Refuse a listing whose paths could lead out of its folder or hide each other.

    Raises: ContentRefused.
    """
    if not files:
        raise ContentRefused(f"{source} has no files")
    if len(files) > MOST_FILES:
        raise ContentRefused(
            f"{source} has {len(files):,} files; at most {MOST_FILES:,} are supported"
        )
    paths = {file.path for file in files}
    if len(paths) < len(files):
        raise ContentRefused(f"{source} lists a file twice")
    for path in paths:
        if not is_safe_path(path):
            raise ContentRefused(f"{source} has a file with the path {path[:200]!r}")
        if any(str(parent) in paths for parent in PurePosixPath(path).parents):
            raise ContentRefused(f"{path[:200]!r} of {source} is in a file")


def is_safe_path(path: str) -> bool:
    """Return whether the path is relative, stays in its folder and is printable."""
    parts = path.split("/")
    return (
        path.isprintable()
        and len(path.encode()) <= MOST_PATH_BYTES
        and all(part not in ("", ".", "..") and len(part) <= 255 for part in parts)
    )
