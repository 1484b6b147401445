"""Files of backups. They are written completely or not at all, and opened with the
recipient's identity."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from corral.boot.backup_sealing import is_sealed, open_sealed
from corral.domain.errors import Conflict
from corral.store.sqlite.database import sync_directory

UNWRITABLE: Final = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
)


@contextmanager
def made_whole(target: Path) -> Iterator[IO[bytes]]:
    """Open a file for the body to write. It appears under the name `target` only once
    it is complete and durable. Only its owner may read it.

    Raises: Conflict if the file cannot be created.
    """
    temporary_path = target.with_name(f".{target.name}.{os.getpid()}")
    opened = _create_backup_file(temporary_path, target)
    try:
        with os.fdopen(opened, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary_path, target)
        sync_directory(target.parent)
    finally:
        temporary_path.unlink(missing_ok=True)


def _create_backup_file(fresh: Path, target: Path) -> int:
    try:
        return os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileNotFoundError:
        raise Conflict(
            f"the folder {target.parent} does not exist",
            hint=f"create the folder: mkdir -p {target.parent}",
        ) from None
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        raise Conflict(
            f"{target} cannot be written: {error.strerror}",
            hint="name a file in a folder that you can write to: corral backup ~/FILE",
        ) from None


@contextmanager
def opened_backup(
    source: Path, identity: X25519PrivateKey | None, folder: Path
) -> Iterator[IO[bytes]]:
    """Open the backup for reading. A sealed backup is decrypted into a temporary file
    without a name in `folder`.

    Raises: Conflict if the backup is sealed and no identity is given, or the reverse;
    SealBroken, OSError.
    """
    with source.open("rb") as file, tempfile.TemporaryFile(dir=folder) as clear:
        if not is_sealed(file):
            if identity is not None:
                raise Conflict(
                    f"--identity was given, but {source} is not encrypted; it may be a "
                    "different backup than you expect",
                    hint=f"if it is the right backup, run: corral restore {source}",
                )
            yield file
            return
        if identity is None:
            raise Conflict(
                f"{source} is encrypted for a recipient; its identity file is needed "
                "to read it",
                hint=f"name the identity file: corral restore {source} --identity FILE",
            )
        open_sealed(file, identity, clear)
        clear.seek(0)
        yield clear
