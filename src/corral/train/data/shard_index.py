"""Index of a data set: number of records, size and hash of each shard, in one file."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corral.train.data.bad_data import BadData

INDEX_NAME: Final = "corral-index.json"
INDEX_FORMAT: Final = 1
CHUNK_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """A shard in an index. `records` depends on the kind of the set."""

    size_bytes: int
    records: int
    sha256: str = ""


def encode_index(shards: Mapping[str, ShardEntry]) -> bytes:
    """Return the content of an index file."""
    entries = {
        name: {
            "bytes": entry.size_bytes,
            "records": entry.records,
            "sha256": entry.sha256,
        }
        for name, entry in sorted(shards.items())
    }
    return json.dumps({"format": INDEX_FORMAT, "shards": entries}, indent=1).encode()


def decode_index(name: str, data: bytes) -> dict[str, ShardEntry]:
    """Return the shards of an index file.

    Raises: BadData if it cannot be read.
    """
    try:
        body: dict[str, Any] = json.loads(data)
        if body["format"] != INDEX_FORMAT:
            raise ValueError(f"it has format {body['format']}, not {INDEX_FORMAT}")
        return {
            shard: ShardEntry(
                size_bytes=int(entry["bytes"]),
                records=int(entry["records"]),
                sha256=str(entry["sha256"]),
            )
            for shard, entry in body["shards"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadData(
            f"bad data in {name}: the index cannot be read: {error!r}; remove it, or write "
            "it again with write_index()"
        ) from error


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
