"""Files of a data set on local or shared storage, or in an object store."""

import glob
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Final, Protocol

from corral.domain.errors import Refusal
from corral.domain.store_url import StoreUrl, is_store_url, parse_store_url
from corral.store.object_client import ObjectClient
from corral.train.data.bad_data import Damaged
from corral.train.data.shard_index import INDEX_NAME

WILDCARDS: Final = "*?["


class NoData(Refusal):
    """The error for a data set without a file."""

    code = "no_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFile:
    """A file of a data set. `name` is relative to the set's folder."""

    name: str
    size_bytes: int


class ShardFiles(Protocol):
    """The files of a data set, ordered by name. `is_remote`: they are fetched before
    they are read."""

    files: Sequence[ShardFile]
    is_remote: bool

    def full_name(self, number: int) -> str:
        """Return the path or address of a file."""

    def path(self, number: int) -> Path:
        """Return a path of this machine with the content of a file.

        Raises: OSError, Damaged if the content does not have the listed size.
        """

    def forget(self, number: int) -> None:
        """Drop a fetched copy, so that the file is fetched again."""

    def read_index(self) -> tuple[str, bytes] | None:
        """Return name and content of the set's index file; None if it does not exist."""

    def write_index(self, data: bytes) -> str:
        """Write the set's index file, and return its name."""


def open_shard_files(
    place: str | os.PathLike[str], suffixes: Sequence[str], *, copies: int
) -> ShardFiles:
    """Return the files of a folder or prefix with one of these suffixes, or those that
    match a pattern such as /data/set/*.bin or s3://bucket/set/*.tar.

    Args:
        suffixes: Empty: files with any suffix.
        copies: Number of fetched files that stay on this machine.

    Raises: NoData if no file is there; StoreRefused, StoreUnavailable, Unsupported.
    """
    text = os.fspath(place)
    files: ShardFiles
    if is_store_url(text):
        files = ObjectShardFiles(text, suffixes, copies)
    else:
        files = LocalShardFiles(text, suffixes)
    if not files.files:
        kinds = " or ".join(suffixes) or "any kind"
        raise NoData(
            f"there is no file of {kinds} in {text}",
            hint=f"check the path on this node: ls {text}",
        )
    return files


class LocalShardFiles:
    """Files of a folder of this machine."""

    is_remote = False

    def __init__(self, place: str, suffixes: Sequence[str]) -> None:
        has_wildcard = any(letter in place for letter in WILDCARDS)
        pattern = place if has_wildcard else os.path.join(place, "**", "*")
        fixed_part = os.path.dirname(place) if has_wildcard else place
        while any(letter in fixed_part for letter in WILDCARDS):
            fixed_part = os.path.dirname(fixed_part)
        self._folder = Path(fixed_part)
        if os.path.isfile(place):
            self._folder = Path(place).parent
            pattern = glob.escape(place)
        self.files: Sequence[ShardFile] = tuple(
            sorted(self._list(pattern, suffixes), key=_name_of)
        )

    def _list(self, pattern: str, suffixes: Sequence[str]) -> Iterator[ShardFile]:
        for entry in glob.iglob(pattern, recursive=True):
            path = Path(entry)
            if path.is_file() and _is_part(path.name, suffixes):
                name = path.relative_to(self._folder).as_posix()
                yield ShardFile(name=name, size_bytes=path.stat().st_size)

    def full_name(self, number: int) -> str:
        return str(self._folder / self.files[number].name)

    def path(self, number: int) -> Path:
        path = self._folder / self.files[number].name
        check_size(path.stat().st_size, self.files[number])
        return path

    def forget(self, number: int) -> None:
        pass

    def read_index(self) -> tuple[str, bytes] | None:
        path = self._folder / INDEX_NAME
        return (str(path), path.read_bytes()) if path.is_file() else None

    def write_index(self, data: bytes) -> str:
        path = self._folder / INDEX_NAME
        unfinished = path.with_name(f"{INDEX_NAME}.{os.getpid()}")
        unfinished.write_bytes(data)
        unfinished.replace(path)
        return str(path)


class ObjectShardFiles:
    """Objects below a prefix. A process fetches each into a folder of its own before it
    reads it, and keeps the newest `copies`."""

    is_remote = True

    def __init__(self, place: str, suffixes: Sequence[str], copies: int) -> None:
        url = parse_store_url(place)
        pattern = "*"
        if any(letter in url.name for letter in WILDCARDS):
            url, pattern = url.parent, url.name
        self._url = url
        self._copies = copies
        self._process: int | None = None
        self._opened: ObjectClient | None = None
        self._spool: Path | None = None
        self._fetched: OrderedDict[int, Path] = OrderedDict()
        prefix = f"{url.key}/" if url.key else ""
        self.files: Sequence[ShardFile] = tuple(
            ShardFile(name=entry.key.removeprefix(prefix), size_bytes=entry.size_bytes)
            for entry in self._client().objects(f"{url.key}/" if url.key else "")
            if entry.key.startswith(prefix)
            and fnmatchcase(entry.key.removeprefix(prefix), pattern)
            and _is_part(entry.key, suffixes)
        )

    def __getstate__(self) -> dict[str, Any]:
        fields = dict(self.__dict__)
        fields |= {"_process": None, "_opened": None, "_spool": None}
        return fields | {"_fetched": OrderedDict()}

    def full_name(self, number: int) -> str:
        return str(self._url / self.files[number].name)

    def path(self, number: int) -> Path:
        client = self._client()
        if number in self._fetched:
            self._fetched.move_to_end(number)
            return self._fetched[number]
        while len(self._fetched) >= self._copies:
            self._fetched.popitem(last=False)[1].unlink(missing_ok=True)
        file = self.files[number]
        if self._spool is None:
            self._spool = Path(tempfile.mkdtemp(prefix="corral-data-"))
            Finalize(self, shutil.rmtree, (self._spool, True), exitpriority=0)
        path = self._spool / str(number)

        def write(chunks: Iterator[bytes]) -> int:
            with path.open("wb") as out:
                return sum(out.write(chunk) for chunk in chunks)

        size_bytes = client.read(self._key(file.name), write)
        if size_bytes is None:
            raise FileNotFoundError(
                2, "the object does not exist", self.full_name(number)
            )
        check_size(size_bytes, file)
        self._fetched[number] = path
        return path

    def forget(self, number: int) -> None:
        path = self._fetched.pop(number, None)
        if path is not None:
            path.unlink(missing_ok=True)

    def read_index(self) -> tuple[str, bytes] | None:
        data = self._client().get(self._key(INDEX_NAME))
        return None if data is None else (str(self._url / INDEX_NAME), data)

    def write_index(self, data: bytes) -> str:
        self._client().put(self._key(INDEX_NAME), data)
        return str(self._url / INDEX_NAME)

    def _key(self, name: str) -> str:
        return f"{self._url.key}/{name}" if self._url.key else name

    def _client(self) -> ObjectClient:
        """Return this process's client: threads of a client do not outlive a fork."""
        if self._process not in (None, os.getpid()):
            raise Refusal(
                f"{self._url} was opened before this process was forked, and its client "
                "does not work after a fork; give the DataLoader "
                "multiprocessing_context='spawn'"
            )
        if self._opened is None:
            self._process = os.getpid()
            self._opened = ObjectClient(
                url=StoreUrl(f"{self._url.scheme}://{self._url.bucket}"),
                env=os.environ,
            )
        return self._opened


def check_size(size_bytes: int, file: ShardFile) -> None:
    """Raises: Damaged if a file does not have the size with which it was listed."""
    if size_bytes != file.size_bytes:
        raise Damaged(
            f"it has {size_bytes} bytes instead of {file.size_bytes}",
            offset=min(size_bytes, file.size_bytes),
        )


def _is_part(name: str, suffixes: Sequence[str]) -> bool:
    is_chosen = not suffixes or name.endswith(tuple(suffixes))
    return is_chosen and not name.rpartition("/")[2].startswith(INDEX_NAME)


def _name_of(file: ShardFile) -> str:
    return file.name
