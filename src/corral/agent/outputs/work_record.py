"""Record of an attempt's work folder, in the attempt's folder: `work.json`."""

import os
from pathlib import Path
from typing import Final

import msgspec

from corral.domain.ids import UserName
from corral.domain.kept_work import KeptWork

RECORD: Final = "work.json"
MODEL: Final = "model"  # links to the node's cache
WORK: Final = "work"


class WorkRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Record of one work folder.

    Args:
        since_ns: files changed before this time came with the workdir; 0 if there were
            none.
        owner: user of the job, once the attempt is settled.
        ended_at: when the attempt was settled; None before that.
        has_saves: recorded saves lie in the folder, so it stays until the head deletes
            the job.
        bytes: size of the kept files.
        is_kept: unchanged files of the workdir were removed, and other files are left.
    """

    since_ns: int = 0
    owner: UserName = UserName("")
    ended_at: float | None = None
    has_saves: bool = False
    bytes: int = 0
    is_kept: bool = False


def read_record(folder: Path) -> WorkRecord:
    """Return the record of an attempt's folder, or an empty record if it cannot be
    read."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=WorkRecord)
    except (OSError, ValueError):
        return WorkRecord()


def write_record(folder: Path, record: WorkRecord) -> None:
    """Write the record of an attempt's folder.

    Raises: OSError when this fails.
    """
    temporary_file = folder / f".{RECORD}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(temporary_file, flags, 0o600), "wb") as file:
        file.write(msgspec.json.encode(record))
    temporary_file.rename(folder / RECORD)


def kept_work_of(folder: Path) -> KeptWork | None:
    """Return the data of a kept work folder that the limits need; None if they do not
    apply, because the folder is not settled or not cleaned up."""
    record = read_record(folder)
    if record.ended_at is None or not record.is_kept:
        return None
    return KeptWork(
        name=folder.name,
        owner=record.owner,
        ended_at=record.ended_at,
        bytes=record.bytes,
        has_saves=record.has_saves,
    )
