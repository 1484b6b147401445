"""Data sets of records in jsonl, tar and parquet files."""

import os
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from corral.domain.errors import Unsupported
from corral.train.data.bad_data import Damaged
from corral.train.data.permutation import Indices
from corral.train.data.read_times import DECODE, READ
from corral.train.data.record_files import (
    JsonLineRecords,
    ParquetRows,
    RecordFile,
    TarMembers,
)
from corral.train.data.shard_source import ShardSource

# what decoders of damaged data raise; anything else is a fault of the decoder
_DAMAGE = (ValueError, EOFError, OSError, zlib.error)
_KINDS: Mapping[str, Callable[..., RecordFile]] = {
    ".jsonl": JsonLineRecords,
    ".tar": TarMembers,
    ".parquet": ParquetRows,
}


class Records(ShardSource):
    """Records of .jsonl files (the value of a line), .parquet files (a row as a mapping;
    needs pyarrow) or .tar files in the form of webdataset (the members with equal names
    up to the first dot, as a mapping of suffixes to bytes, with "__key__").

    A batch is a list of records. `decode` is called for each record, and its result
    takes the record's place. The arguments that are not named here are those of
    ShardSource.

    Raises: NoData, BadData; Unsupported for parquet without pyarrow.
    """

    suffixes = tuple(_KINDS)

    def __init__(
        self,
        place: str | os.PathLike[str],
        decode: Callable[[Any], Any] | None = None,
        **settings: Any,
    ) -> None:
        self._decode = decode
        super().__init__(place, **settings)

    def _count_records(self, number: int) -> int:
        return len(self._open(number))

    def _open(self, number: int) -> RecordFile:
        name = self.files.files[number].name
        kind = next(kind for suffix, kind in _KINDS.items() if name.endswith(suffix))
        with self.times.measure(READ):
            try:
                return kind(self.files.path(number))
            except ImportError:
                raise Unsupported(
                    f"{name} needs a Python package that is not installed: pyarrow",
                    hint="run: pip install pyarrow",
                ) from None

    def _read(self, shard: RecordFile, records: Indices) -> list[Any]:
        samples = []
        for record in records.tolist():
            with self.times.measure(READ):
                content = shard.read(record)
            with self.times.measure(DECODE):
                samples.append(self._decoded(shard, record, content))
        return samples

    def _decoded(self, shard: RecordFile, record: int, content: Any) -> Any:
        try:
            value = shard.decode(content)
            return value if self._decode is None else self._decode(value)
        except _DAMAGE as error:
            raise Damaged(
                f"record {record} cannot be decoded: {error!r}",
                offset=shard.offset(record),
            ) from error


class Files(ShardSource):
    """Whole files as samples, each as the mapping {"path", "bytes"}. A batch is a list
    of them. `decode` is called for each, and its result takes its place.

    Args:
        suffixes: Suffixes of the files, such as (".jpg", ".png"); empty: any.

    The other arguments are those of ShardSource.

    Raises: NoData, BadData.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        decode: Callable[[Any], Any] | None = None,
        suffixes: tuple[str, ...] = (),
        mixed_shards: int | None = None,
        **settings: Any,
    ) -> None:
        self._decode = decode
        self.suffixes = suffixes
        super().__init__(place, mixed_shards=mixed_shards, **settings)
        self._open_limit = 1  # a file is read once an epoch

    def _count_records(self, number: int) -> int:
        return 1

    def _open(self, number: int) -> Any:
        with self.times.measure(READ):
            content = self.files.path(number).read_bytes()
        return {"path": self.files.full_name(number), "bytes": content}

    def _read(self, shard: Any, records: Indices) -> list[Any]:
        with self.times.measure(DECODE):
            try:
                return [shard if self._decode is None else self._decode(shard)]
            except _DAMAGE as error:
                raise Damaged(f"it cannot be decoded: {error!r}", offset=0) from error
