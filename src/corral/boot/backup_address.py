"""The address of the last head and its certificates, as stored in a backup."""

import json
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from corral.boot.backup_files import made_whole
from corral.boot.settings import ClusterDir, write_atomically
from corral.boot.tls import own_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Address of the last head of a cluster."""

    url: str


def address_files(place: ClusterDir) -> dict[str, Path]:
    """Return the files by which agents and clients find a head and verify it. The keys
    are their names in a backup."""
    return {place.head_json.name: place.head_json, **own_files(place)}


def put_address(tar: tarfile.TarFile, place: ClusterDir) -> None:
    """Restore the address and certificates of the last head, so that its agents and
    clients find the next head: at the old port, with the old certificate.

    A directory that has an address or certificates keeps its own. Backups of earlier
    versions contain neither.
    """
    names = frozenset(tar.getnames())
    if place.head_json.name in names and not place.head_json.exists():
        # it was damaged already when the backup was made
        with suppress(msgspec.MsgspecError):
            address = msgspec.json.decode(
                _read_member(tar, place.head_json.name), type=Address
            )
            write_atomically(place.head_json, json.dumps({"url": address.url}))
    files = own_files(place)
    if any(file.exists() for file in files.values()):
        return
    for name in names & files.keys():
        place.tls.mkdir(mode=0o700, exist_ok=True)
        with made_whole(files[name]) as file:
            file.write(_read_member(tar, name))


def _read_member(tar: tarfile.TarFile, name: str) -> bytes:
    """Return the content of a file of the backup.

    Raises: KeyError if the backup has no file of this name.
    """
    member = tar.extractfile(name)
    if member is None:
        raise KeyError(f"the file {name} is missing in the backup")
    return member.read()
