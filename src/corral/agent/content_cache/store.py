"""The cache's files on disk: blobs by their SHA-256, and manifests.

A blob has a fixed modification time: another time shows that a job has written to it. An
attempt gets hard links to the blobs, so the number of links shows which are in use.
Nothing of the cache is changed in place; a killed agent leaves whole blobs and partial
files, with which the next one goes on.
"""

import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from corral.agent.clocks import wall
from corral.agent.content_cache.manifest import SHA256, ContentManifest
from corral.agent.content_cache.refusals import ContentTrouble
from corral.domain.units import size_text

DEFAULT_SHARE: Final = 0.2  # of the disk
RESERVE_BYTES: Final = 64 * 1024**2  # stays free, so that attempts can still write
STAMP_NS: Final = 946_684_800 * 10**9  # modification time of a whole blob
STALE_SECONDS: Final = 86_400.0  # of blobs and partial files without a manifest
CHUNK_BYTES: Final = 1024 * 1024
_LINKS_FULL: Final = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP)


class ContentStore:
    """The folder of a node's cache. Used in threads; `lock` guards the set of
    manifests.

    Args:
        most_bytes: Most bytes of the cache; None: a fifth of the disk.
    """

    def __init__(self, root: Path, most_bytes: int | None = None) -> None:
        self.root = root
        self.most_bytes_setting = most_bytes
        self.lock = threading.RLock()
        self._busy: dict[str, int] = {}  # keys that a fetch or an attempt needs now

    # --- manifests

    def manifests(self) -> list[ContentManifest]:
        """Return all manifests. One that cannot be read is left out."""
        found_manifests = []
        for file in sorted(self._folder("manifests").glob("*.json")):
            with suppress(OSError, ValueError):
                text = file.read_bytes()
                found_manifests.append(msgspec.json.decode(text, type=ContentManifest))
        return found_manifests

    def manifest(self, key: str) -> ContentManifest | None:
        """Return the manifest of this key; None without one."""
        try:
            text = self._manifest_file(key).read_bytes()
            return msgspec.json.decode(text, type=ContentManifest)
        except (OSError, ValueError):
            return None

    def put_manifest(self, manifest: ContentManifest) -> None:
        """Store a manifest whose blobs are all there. Raises: OSError."""
        file = self._manifest_file(manifest.key)
        used_at = self.used_at(manifest.key)
        self._make_folder(file.parent)
        temporary_file = file.with_suffix(".new")
        temporary_file.write_bytes(msgspec.json.encode(manifest))
        if used_at:
            os.utime(temporary_file, (used_at, used_at))
        temporary_file.rename(file)

    def used_at(self, key: str) -> float:
        """Return when the content was last used (wall clock); 0 if it is not there."""
        try:
            return self._manifest_file(key).stat().st_mtime
        except OSError:
            return 0.0

    def touch(self, key: str) -> None:
        """Record that the content is used now."""
        with suppress(OSError):
            os.utime(self._manifest_file(key))

    def sha256_by_tag(self, origin: str) -> Mapping[str, str]:
        """Return the hashes of the whole files that came from this origin, by their
        tags."""
        return {
            file.tag: file.sha256
            for manifest in self.manifests()
            if manifest.origin == origin
            for file in manifest.files
            if file.tag
        }

    # --- blobs

    def blob(self, sha256: str) -> Path:
        """Return the path of a blob, whether it exists or not."""
        return self._folder("blobs") / sha256[:2] / sha256

    def has_blob(self, sha256: str, size: int | None) -> bool:
        """Return whether the blob is there and nothing has written to it. A blob that
        was written to is removed, unless its content is right."""
        path = self.blob(sha256)
        try:
            path_stat = path.stat()
        except OSError:
            return False
        if path_stat.st_mtime_ns == STAMP_NS and size in (None, path_stat.st_size):
            return True
        with suppress(OSError):
            if file_sha256(path) == sha256:
                os.utime(path, ns=(STAMP_NS, STAMP_NS))
                return True
        path.unlink(missing_ok=True)
        return False

    def partial(self, tag: str) -> Path:
        """Return the path for the beginning of a file that is being fetched."""
        folder = self._folder("partial")
        self._make_folder(folder)
        return folder / hashlib.sha256(tag.encode()).hexdigest()

    def take_in(self, partial: Path, sha256: str) -> None:
        """Make a whole and verified file a blob, durably. Raises: OSError."""
        path = self.blob(sha256)
        self._make_folder(path.parent)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.chmod(0o444)
        os.utime(partial, ns=(STAMP_NS, STAMP_NS))
        partial.rename(path)

    # --- trees

    def link_tree(self, manifest: ContentManifest, folder: Path) -> Path:
        """Give an attempt the tree in this new folder, as links to the blobs. Return the
        folder, or the file of content that is one file.

        Raises: OSError, ContentTrouble.
        """
        temporary_folder = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(temporary_folder, ignore_errors=True)
        temporary_folder.mkdir(mode=0o755, parents=True)
        for file in manifest.files:
            target = temporary_folder / file.path
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _link_or_copy(self.blob(file.sha256), target)
        for path in (temporary_folder, *temporary_folder.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)  # also where the agent's umask is narrower
        shutil.rmtree(folder, ignore_errors=True)
        temporary_folder.rename(folder)
        self.touch(manifest.key)
        return folder / manifest.files[0].path if manifest.is_file else folder

    def is_used(self, manifest: ContentManifest) -> bool:
        """Return whether an attempt on this node has links to all of its blobs. Links to
        some of them may be those of other content with the same files."""
        return self._is_busy(manifest.key) or all(
            _link_count(self.blob(sha256)) > 1 for sha256 in manifest.blobs
        )

    @contextmanager
    def busy(self, key: str) -> Iterator[None]:
        """Protect the content from eviction while the block runs."""
        with self.lock:
            self._busy[key] = self._busy.get(key, 0) + 1
        try:
            yield
        finally:
            with self.lock:
                self._busy[key] -= 1
                if not self._busy[key]:
                    del self._busy[key]

    # --- room

    @property
    def most_bytes(self) -> int:
        """Return the most bytes that the cache may have. Raises: OSError."""
        if self.most_bytes_setting is not None:
            return self.most_bytes_setting
        disk = os.statvfs(existing_parent(self.root))
        return int(DEFAULT_SHARE * disk.f_blocks * disk.f_frsize)

    def used_bytes(self) -> int:
        """Return the bytes of all blobs and partial files."""
        return sum(_size(file) for file in self._all_files())

    def make_room(self, needed_bytes: int, name: str, spared: frozenset[str]) -> None:
        """Evict the content that was used least recently, until this many more bytes
        fit. Pinned content, content in use and `spared` blobs stay.

        Raises: ContentTrouble if they do not fit; then everything stays.
        """
        with self.lock:
            evictable = [
                manifest
                for manifest in sorted(
                    self.manifests(), key=lambda entry: self.used_at(entry.key)
                )
                if not manifest.is_pinned and not self.is_used(manifest)
            ]
            self._drop_stale_files(spared)
            missing = self._missing_bytes(needed_bytes)
            freeable = self._freeable_bytes(evictable, spared)
            if missing > freeable:
                raise ContentTrouble(
                    f"{name} needs {size_text(needed_bytes)} more on this node, but only "
                    f"{size_text(max(0, needed_bytes - missing + freeable))} can be made "
                    f"free: the limit of the cache is {size_text(self.most_bytes)}, and "
                    "pinned content and content in use stay",
                    hint="run: corral model ls; or a larger limit: corral up "
                    "--model-cache SIZE",
                )
            for manifest in evictable:
                if self._missing_bytes(needed_bytes) <= 0:
                    return
                self.remove(manifest, spared)

    def remove(
        self, manifest: ContentManifest, spared: frozenset[str] = frozenset()
    ) -> None:
        """Remove the manifest, and its blobs that no other manifest has."""
        with self.lock:
            self._manifest_file(manifest.key).unlink(missing_ok=True)
            shared = spared.union(*(other.blobs for other in self.manifests()))
            for sha256 in manifest.blobs - shared:
                self.blob(sha256).unlink(missing_ok=True)

    def _missing_bytes(self, needed_bytes: int) -> int:
        """Return how many bytes must be freed before the needed ones fit."""
        disk = os.statvfs(existing_parent(self.root))
        free_bytes = disk.f_bavail * disk.f_frsize - RESERVE_BYTES
        above_limit = self.used_bytes() + needed_bytes - self.most_bytes
        return max(above_limit, needed_bytes - free_bytes)

    def _freeable_bytes(
        self, evictable: Iterable[ContentManifest], spared: frozenset[str]
    ) -> int:
        evictable_keys = {manifest.key for manifest in evictable}
        staying: set[str] = set(spared)
        blobs: dict[str, int] = {}
        for manifest in self.manifests():
            if manifest.key in evictable_keys:
                blobs |= {file.sha256: file.size for file in manifest.files}
            else:
                staying |= manifest.blobs
        return sum(
            size
            for sha256, size in blobs.items()
            if sha256 not in staying and _link_count(self.blob(sha256)) == 1
        )

    def _drop_stale_files(self, spared: frozenset[str]) -> None:
        """Remove old partial files, and old blobs that no manifest has."""
        needed = spared.union(*(manifest.blobs for manifest in self.manifests()))
        oldest = wall() - STALE_SECONDS
        for file in list(self._all_files()):
            with suppress(OSError):
                if file.name not in needed and file.stat().st_ctime < oldest:
                    file.unlink()

    def _all_files(self) -> Iterator[Path]:
        yield from self._folder("blobs").glob("*/*")
        yield from self._folder("partial").glob("*")

    def _is_busy(self, key: str) -> bool:
        return key in self._busy

    def _folder(self, name: str) -> Path:
        return self.root / name

    def _make_folder(self, folder: Path) -> None:
        """Make a folder of the cache, which only the agent may enter: some content is
        not for all users of the node. Raises: OSError."""
        if not self.root.is_dir():
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.root.chmod(0o700)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _manifest_file(self, key: str) -> Path:
        if not SHA256.fullmatch(key):
            raise ValueError(f"{key[:80]!r} is not the key of a manifest")
        return self._folder("manifests") / f"{key}.json"


def file_sha256(path: Path, stopped: Callable[[], bool] = lambda: False) -> str:
    """Return the SHA-256 of a file; "" if `stopped` returns True meanwhile. Raises:
    OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            if stopped():
                return ""
    return digest.hexdigest()


def existing_parent(path: Path) -> Path:
    """Return the path, or its nearest parent folder that exists."""
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _link_or_copy(blob: Path, target: Path) -> None:
    """Raises: OSError."""
    try:
        os.link(blob, target)
    except OSError as error:
        if error.errno not in _LINKS_FULL:
            raise
        shutil.copyfile(blob, target)


def _link_count(path: Path) -> int:
    try:
        return path.stat().st_nlink
    except OSError:
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
