"""Small saves of plain bytes in an object store: every byte tells the step."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from corral.domain.errors import CorralError
from corral.domain.store_url import StoreUrl, parse_store_url
from corral.train.save import object_store
from corral.train.save.manifest import Manifest, digest, encode
from corral.train.save.object_restore import StoredSave, fetch_whole
from corral.train.save.object_store import ObjectShelf
from corral.train.save.object_target import StoreLimits
from tests.train.s3_server import Fault, Request, S3Server

ROOT = parse_store_url("s3://bucket/saves/j1")
QUICK = StoreLimits(retry_seconds=2.0)
FILES = ("rank-00000-000.bin", "rank-00001-000.bin")


def shelf_at(attempt: int, root: StoreUrl = ROOT) -> ObjectShelf:
    return ObjectShelf(root=root, job="j1", attempt=attempt, limits=QUICK)


def opened(attempt: int, root: StoreUrl = ROOT) -> ObjectShelf:
    shelf = shelf_at(attempt, root)
    shelf.open()
    return shelf


def content_of(step: int, size: int = 2500) -> bytes:
    return f"{step};".encode() * (size // len(f"{step};"))


def save_step(shelf: ObjectShelf, step: int) -> StoredSave:
    """Save as the saver does: files, manifest, publication; abandoned if it fails."""
    target = None
    try:
        target = shelf.begin(step)
        entries = []
        for name in FILES:
            file = target.create(name)
            file.append(memoryview(content_of(step)))
            entries.append(file.finish())
        entries.append(target.write("index.pickle", content_of(step, 50)))
        manifest = encode(
            Manifest(
                job="j1",
                attempt=shelf.attempt,
                step=step,
                world_size=2,
                torch="0",
                files=tuple(entries),
            )
        )
        url = shelf.publish(step, target, manifest)
    except CorralError:
        shelf.abandon(step, target)
        raise
    return StoredSave(
        url=url, attempt=shelf.attempt, step=step, manifest_sha256=digest(manifest)
    )


def load_save(save: StoredSave) -> None:
    """Fetch the save, verified, and check that every byte is of its step."""
    with tempfile.TemporaryDirectory() as folder:
        fetch_whole(save, Path(folder))
        for name in FILES:
            assert (Path(folder) / name).read_bytes() == content_of(save.step)


def load_newest(root: StoreUrl = ROOT) -> tuple[int, int]:
    """Load every published save; answer with the newest."""
    slots = shelf_at(0, root).saves()
    for slot in slots:
        assert isinstance(slot.path, StoreUrl)
        load_save(StoredSave(url=slot.path, attempt=slot.attempt, step=slot.step))
    return (slots[0].attempt, slots[0].step)


class At:
    """Chooser of a fault at the request with this number, counted from 1. `then` is
    called before the answer; `always` is the fault of all requests after it."""

    def __init__(
        self,
        number: int,
        fault: Fault | None,
        *,
        always: Fault | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        self.count = 0
        self.met: Request | None = None
        self._number = number
        self._fault = fault
        self._always = always
        self._then = then
        self._is_busy = False
        self._lock = Lock()

    def __call__(self, request: Request) -> Fault | None:
        with self._lock:
            if self._is_busy:
                return None  # a request of `then`
            self.count += 1
            count = self.count
            self._is_busy = count == self._number and self._then is not None
        if count > self._number:
            return self._always
        if count < self._number:
            return None
        self.met = request
        if self._then is not None:
            try:
                self._then()
            finally:
                self._is_busy = False
        return self._fault


@contextmanager
def choosing(server: S3Server, at: At) -> Iterator[None]:
    server.choose = at
    try:
        yield
    finally:
        server.choose = lambda request: None


def names_below(server_objects: dict[str, bytes], root: StoreUrl = ROOT) -> set[str]:
    """The folders with files of saves."""
    start = len(root.key) + 1
    return {
        key[start:].rpartition("/")[0]
        for key in server_objects
        if key.startswith(f"{root.key}/attempt-")
    }


def published_folders(root: StoreUrl = ROOT) -> set[str]:
    return {entry.folder for entry in object_store.published_entries(root, QUICK)}
