"""Verification of a save before it is loaded, by the size and the SHA-256 of every
file."""

import hashlib
import os
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from corral.train.save.manifest import (
    MANIFEST,
    Broken,
    FileEntry,
    Manifest,
    decode,
    digest,
)

CHUNK_BYTES: Final = 512 * 1024  # stays in a core's cache between reading and hashing
THREADS: Final = 4  # reading and hashing both let go of the GIL


def verify(
    directory: Path,
    *,
    attempt: int,
    step: int,
    manifest_sha256: str | None = None,
    part: int = 0,
    parts: int = 1,
) -> Manifest:
    """Verify a save, and return its manifest.

    Args:
        manifest_sha256: the hash of the manifest that the head has recorded; None if
            there is no record.
        part: index of the share of the files that this caller hashes.
        parts: number of shares. Each caller hashes only its own share of the files, but
            checks the manifest and all sizes.

    Raises: Broken with a description of the defect.
    """
    manifest = check_manifest(
        _read_manifest(directory),
        attempt=attempt,
        step=step,
        manifest_sha256=manifest_sha256,
    )
    names = {entry.name for entry in manifest.files}
    verify_files(directory, manifest, names, part=part, parts=parts)
    return manifest


def verify_files(
    directory: Path,
    manifest: Manifest,
    names: Collection[str],
    *,
    part: int = 0,
    parts: int = 1,
) -> None:
    """Verify the files with these names, of all sizes, and of this share the contents.

    Raises: Broken with a description of the defect.
    """
    entries = [entry for entry in manifest.files if entry.name in names]
    for entry in entries:
        _check_size(directory / entry.name, entry)
    by_size = sorted(entries, key=lambda entry: (-entry.size_bytes, entry.name))
    _check_contents(directory, by_size[part::parts])


def check_manifest(
    data: bytes, *, attempt: int, step: int, manifest_sha256: str | None = None
) -> Manifest:
    """Return the manifest if it is that of this save, else raise Broken."""
    if manifest_sha256 is not None and digest(data) != manifest_sha256:
        raise Broken("the manifest of the save is not the one that the head recorded")
    manifest = decode(data)
    if (manifest.attempt, manifest.step) != (attempt, step):
        their_text = f"attempt {manifest.attempt}, step {manifest.step}"
        raise Broken(f"the manifest of the save belongs to another save: {their_text}")
    return manifest


def _read_manifest(directory: Path) -> bytes:
    try:
        return (directory / MANIFEST).read_bytes()
    except OSError as error:
        raise Broken(
            f"the manifest of the save is missing: {error.strerror}"
        ) from error


def _check_size(path: Path, entry: FileEntry) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise Broken(f"the file {entry.name} is missing: {error.strerror}") from error
    if size != entry.size_bytes:
        raise Broken(
            f"the file {entry.name} has {size} bytes instead of {entry.size_bytes}"
        )


def _check_contents(directory: Path, entries: Sequence[FileEntry]) -> None:
    if len(entries) < 2:
        for entry in entries:
            _check_content(directory / entry.name, entry)
        return
    with ThreadPoolExecutor(min(THREADS, len(entries))) as pool:
        checks = [
            pool.submit(_check_content, directory / file_entry.name, file_entry)
            for file_entry in entries
        ]
        for check in checks:
            check.result()


def _check_content(path: Path, entry: FileEntry) -> None:
    try:
        content_digest = file_digest(path)
    except OSError as error:
        raise Broken(
            f"the file {entry.name} cannot be read: {error.strerror}"
        ) from error
    if content_digest != entry.sha256:
        raise Broken(
            f"the file {entry.name} was changed after the save: its SHA-256 differs from "
            "the manifest's"
        )


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, read from beginning to end."""
    hasher = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        buffer = bytearray(min(CHUNK_BYTES, max(1, path.stat().st_size)))
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            hasher.update(view[:count])
    return hasher.hexdigest()
