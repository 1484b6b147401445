"""Fetching of a save from an object store into a directory of this machine, verified
while it arrives."""

import atexit
import hashlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corral.domain.errors import CorralError, Trouble
from corral.domain.store_url import StoreUrl
from corral.train.process_group import ProcessGroup
from corral.train.save.manifest import MANIFEST, Broken, FileEntry, Manifest, decode
from corral.train.save.object_store import published_entries
from corral.train.save.object_target import StoreLimits, client_of
from corral.train.save.verify import check_manifest

THREADS: Final = 4
TRIES: Final = 2  # of a file that arrives changed
PREFIX: Final = "corral-restore-"
CONFIG: Final = "config.json"


class SaveUnreachable(Trouble):
    """The error for a save that cannot be fetched now, though it may be intact."""

    code = "save_unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSave:
    """A save in an object store, with what is known of it. `manifest_sha256` None: no
    head has recorded the save."""

    url: StoreUrl
    attempt: int
    step: int
    manifest_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _FetchFault:
    """A failed fetch. `is_broken`: the save itself is damaged."""

    text: str
    is_broken: bool


def fetch_together(save: StoredSave, gang: ProcessGroup) -> Path:
    """Fetch a save on all ranks together: ranks that share a directory for temporary
    files fetch each file once. Return the directory.

    Raises on all ranks: Broken with a description of the defect; SaveUnreachable.
    """
    data = gang.share(_read_together(save) if gang.leads else None)
    _raise_fault([data], save)
    manifest = decode(data)
    folder, members = _agree_on_folder(gang)
    fault = None
    try:
        _check_room(folder, manifest)
        index, count = members.index(gang.rank), len(members)
        if index == 0:
            (folder / MANIFEST).write_bytes(data)
        fetch_files(save, _share_of(manifest, index, count), folder)
    except (CorralError, OSError) as error:
        fault = _fault_of(error)
    try:
        _raise_fault(_gather_to_all(gang, fault), save)
    except CorralError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def release(folder: Path, gang: ProcessGroup) -> None:
    """Remove a fetched save that all ranks have loaded. All ranks must call this."""
    _gather_to_all(gang, None)
    shutil.rmtree(folder, ignore_errors=True)


def fetch_whole(save: StoredSave, folder: Path) -> Manifest:
    """Fetch a save into a directory, and return its manifest.

    Raises: Broken, OSError, StoreRefused, StoreUnavailable.
    """
    data = read_manifest(save)
    manifest = decode(data)
    folder.mkdir(parents=True, exist_ok=True)
    _check_room(folder, manifest)
    fetch_files(save, manifest.files, folder)
    (folder / MANIFEST).write_bytes(data)
    return manifest


def fetch_configs(url: StoreUrl, folder: Path) -> None:
    """Fetch the config.json of the model to where an export looks for it: in the folder
    of the save, of its attempt, or of all saves of the job.

    Raises: StoreRefused, StoreUnavailable.
    """
    for place in (folder, *folder.parents[:2]):
        data = client_of(url, StoreLimits()).get(f"{url.key}/{CONFIG}")
        if data is not None:
            (place / CONFIG).write_bytes(data)
        url = url.parent


def read_manifest(save: StoredSave) -> bytes:
    """Return the manifest of a save: the copy below its prefix, else that of the log.

    Raises: Broken, StoreRefused, StoreUnavailable.
    """
    data = client_of(save.url, StoreLimits()).get(f"{save.url.key}/{MANIFEST}")
    try:
        if data is None:
            raise Broken("the manifest of the save is missing")
        check_manifest(
            data,
            attempt=save.attempt,
            step=save.step,
            manifest_sha256=save.manifest_sha256,
        )
    except Broken:
        logged = _logged_manifest(save)
        if logged is None:
            raise
        return logged
    return data


def fetch_files(save: StoredSave, entries: Sequence[FileEntry], folder: Path) -> None:
    """Fetch files of a save, several at once. Each is hashed while it arrives; one that
    arrives changed is fetched again once.

    Raises: Broken, OSError, StoreRefused, StoreUnavailable.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        for fetched in [
            pool.submit(_fetch_file, save, entry, folder) for entry in entries
        ]:
            fetched.result()


def _fetch_file(save: StoredSave, entry: FileEntry, folder: Path) -> None:
    if Path(entry.name).name != entry.name:
        raise Broken(f"{entry.name!r} is not a valid name of a file of a save")
    client = client_of(save.url, StoreLimits())
    trouble = ""
    for _ in range(TRIES):
        arrived = client.read(
            f"{save.url.key}/{entry.name}",
            lambda chunks: _write_hashed(folder / entry.name, chunks),
        )
        if arrived is None:
            raise Broken(f"the file {entry.name} is missing")
        size, sha256 = arrived
        if sha256 == entry.sha256:
            return
        trouble = (
            f"the file {entry.name} has {size} bytes instead of {entry.size_bytes}"
            if size != entry.size_bytes
            else f"the file {entry.name} was changed after the save: its SHA-256 differs "
            "from the manifest's"
        )
    raise Broken(trouble)


def _write_hashed(path: Path, chunks: Iterator[bytes]) -> tuple[int, str]:
    hasher, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            hasher.update(chunk)
            size += len(chunk)
    return size, hasher.hexdigest()


def _logged_manifest(save: StoredSave) -> bytes | None:
    """Return the manifest of the save in the log; None if the log does not have it."""
    root = save.url.parent.parent
    for entry in published_entries(root, StoreLimits()):
        if root / entry.folder == save.url:
            data = entry.manifest.encode()
            check_manifest(
                data,
                attempt=save.attempt,
                step=save.step,
                manifest_sha256=save.manifest_sha256,
            )
            return data
    return None


def _read_together(save: StoredSave) -> bytes | _FetchFault:
    try:
        return read_manifest(save)
    except (CorralError, OSError) as error:
        return _fault_of(error)


def _fault_of(error: CorralError | OSError) -> _FetchFault:
    text = error.message if isinstance(error, CorralError) else str(error)
    return _FetchFault(text=text, is_broken=isinstance(error, Broken))


def _raise_fault(results: Sequence[object], save: StoredSave) -> None:
    """Raise the first fault of the ranks. A save that cannot be read is not broken."""
    faults = [result for result in results if isinstance(result, _FetchFault)]
    for fault in faults:
        if not fault.is_broken:
            raise SaveUnreachable(
                f"the save of step {save.step} cannot be read from {save.url}: {fault.text}",
                hint="check the store and the job's credentials, then run: corral resume JOB",
            )
    if faults:
        raise Broken(faults[0].text)


def _agree_on_folder(gang: ProcessGroup) -> tuple[Path, list[int]]:
    """Return an empty directory of this machine, and the ranks that share it."""
    token = secrets.token_hex(16)
    own_folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    atexit.register(shutil.rmtree, own_folder, ignore_errors=True)
    mark = own_folder / token
    mark.touch()
    marks: list[Path] = _gather_to_all(gang, mark)
    chosen = next(path for path in marks if path == mark or path.is_file())
    choices: list[Path] = _gather_to_all(gang, chosen)
    if mark in choices:
        mark.unlink()
    else:
        shutil.rmtree(own_folder, ignore_errors=True)
    members = [rank for rank, choice in enumerate(choices) if choice == chosen]
    return chosen.parent, members


def _gather_to_all(gang: ProcessGroup, value: Any) -> list[Any]:
    """Return the value of every rank, by rank, on all ranks."""
    values: list[Any] = gang.share(gang.gather(value))
    return values


def _share_of(manifest: Manifest, index: int, count: int) -> Sequence[FileEntry]:
    """Return the files that the rank with this index of `count` fetches."""
    return sorted(manifest.files, key=lambda entry: (-entry.size_bytes, entry.name))[
        index::count
    ]


def _check_room(folder: Path, manifest: Manifest) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < manifest.size_bytes:
        raise OSError(
            f"{folder.parent} has {free_bytes / 1e9:.1f} GB free and the save has "
            f"{manifest.size_bytes / 1e9:.1f} GB; set TMPDIR to a larger disk"
        )
