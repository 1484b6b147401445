"""Files of records: the location of each record, and its content."""

import json
import mmap
import tarfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from corral.train.data.bad_data import Damaged

TAR_BLOCK: Final = 512
NEWLINE: Final = 10


class RecordFile(Protocol):
    """An opened file of records."""

    def __len__(self) -> int: ...

    def read(self, record: int) -> Any:
        """Return the content of a record, not yet decoded."""

    def decode(self, content: Any) -> Any:
        """Return the value of a content. Raises: ValueError if it is damaged."""

    def offset(self, record: int) -> int | None:
        """Return the byte of the file at which a record begins, if it has one."""


class JsonLineRecords:
    """Lines of a .jsonl file. Empty lines are no records."""

    def __init__(self, path: Path) -> None:
        self._map = _map_file(path)
        ends = np.flatnonzero(np.frombuffer(self._map, dtype=np.uint8) == NEWLINE)
        if len(self._map) and (not len(ends) or ends[-1] != len(self._map) - 1):
            ends = np.append(ends, len(self._map))
        starts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
        is_record = np.array(
            [
                end - start > 2 or bool(self._map[start:end].strip())
                for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
            ],
            dtype=bool,
        )
        self._starts = starts[is_record]
        self._ends = ends[is_record]

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, record: int) -> bytes:
        line: bytes = self._map[int(self._starts[record]) : int(self._ends[record])]
        return line

    def decode(self, content: bytes) -> Any:
        return json.loads(content)

    def offset(self, record: int) -> int:
        return int(self._starts[record])


class TarMembers:
    """Members of a .tar file, grouped by their names up to the first dot."""

    def __init__(self, path: Path) -> None:
        self._map = _map_file(path)
        self._records: list[tuple[str, list[tuple[str, int, int]]]] = []
        self._offsets: list[int] = []
        self._list_members(path)

    def _list_members(self, path: Path) -> None:
        end = 0
        try:
            with tarfile.open(path, "r:") as archive:
                for member in archive:
                    if member.isfile():
                        self._add_member(member)
                end = archive.offset
        except tarfile.TarError as error:
            raise Damaged(f"it is not a valid tar file: {error}", offset=end) from error
        # tarfile takes a damaged header for the end of the archive
        if self._map[end : end + TAR_BLOCK] != bytes(TAR_BLOCK):
            raise Damaged(
                "a header is damaged, or the end of the archive is missing", offset=end
            )

    def _add_member(self, member: tarfile.TarInfo) -> None:
        folder, slash, name = member.name.rpartition("/")
        stem, _, suffix = name.partition(".")
        key = f"{folder}{slash}{stem}"
        if not self._records or self._records[-1][0] != key:
            self._records.append((key, []))
            self._offsets.append(member.offset)
        self._records[-1][1].append((suffix, member.offset_data, member.size))

    def __len__(self) -> int:
        return len(self._records)

    def read(self, record: int) -> dict[str, Any]:
        key, members = self._records[record]
        parts = {
            suffix: self._map[start : start + size] for suffix, start, size in members
        }
        return {"__key__": key, **parts}

    def decode(self, content: dict[str, Any]) -> dict[str, Any]:
        return content

    def offset(self, record: int) -> int:
        return self._offsets[record]


class ParquetRows:
    """Rows of a .parquet file, which is read as a whole."""

    def __init__(self, path: Path) -> None:
        arrow = import_module("pyarrow")
        read_table = import_module("pyarrow.parquet").read_table

        try:
            self._table = read_table(path, memory_map=False, use_threads=False)
        except (arrow.ArrowException, OSError) as error:
            raise Damaged(f"it is not a valid parquet file: {error}") from error

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def read(self, record: int) -> Any:
        return self._table.slice(record, 1)

    def decode(self, content: Any) -> Any:
        return content.to_pylist()[0]

    def offset(self, record: int) -> None:
        return None


def _map_file(path: Path) -> Any:
    """Return the content of a file as a read-only memory map, or b"" if it is empty."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            return b""
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
