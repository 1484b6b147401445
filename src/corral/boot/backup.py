"""A backup of a cluster: one file with its store, its key, and the workdir snapshots of
its unfinished jobs."""

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from corral import __version__
from corral.boot.backup_address import address_files, put_address
from corral.boot.backup_files import made_whole, opened_backup
from corral.boot.backup_sealing import SealBroken, sealed
from corral.boot.directory_lock import sole_head
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.stores import url_in
from corral.domain.errors import Conflict, StoreTrouble, Unsupported
from corral.store import backup
from corral.store.database import Database, driver, transaction
from corral.store.queries import read_head
from corral.store.schema import REVISION
from corral.store.sqlite import SqliteStore
from corral.store.sqlite.database import SqliteDatabase, raw_of, sync_directory

FORM: Final = 1
ABOUT: Final = "backup.json"
ROWS: Final = "rows.jsonl"
SNAPSHOTS: Final = "snapshots/"
PIECE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Description of a backup. `at` is the wall clock of the backup, and `sha256` is
    the hash of its rows."""

    form: int = FORM
    corral: str = __version__
    revision: str = REVISION
    cluster: str
    at: float
    rows: int
    sha256: str
    snapshots: int
    jobs: int
    unfinished: int


def back_up(
    place: ClusterDir, target: Path, at: float, recipient: X25519PublicKey | None = None
) -> About:
    """Write the whole cluster, as of one moment, into the file. The head may run or
    not. With a recipient, only the recipient's identity can open the file.

    Raises: Conflict if there is no store, the file name exists already, or the file
    cannot be created; StoreTrouble.
    """
    backup_sources = kept_of(place)
    database = backup_sources.database
    if os.path.lexists(target):
        raise Conflict(
            f"{target} already exists", hint="choose another name, or remove this file"
        )
    with (
        _in_words(database),
        made_whole(target) as output_file,
        tempfile.TemporaryFile(dir=target.parent) as rows,
        closing(database.connect(write=False)) as connection,
        read_alone(database, connection),
    ):
        digest, count = hashlib.sha256(), 0
        for line in backup.lines_of(connection):
            digest.update(line)
            count += rows.write(line) > 0
        needed = [
            backup_sources.snapshots / f"{snapshot}.tar.gz"
            for snapshot in backup.needed(connection)
        ]
        paths = [path for path in needed if path.exists()]
        jobs, unfinished = backup.jobs_in(connection)
        about = About(
            cluster=backup.cluster_of(connection),
            at=at,
            rows=count,
            sha256=digest.hexdigest(),
            snapshots=len(paths),
            jobs=jobs,
            unfinished=unfinished,
        )
        files = {
            place.key.name: backup_sources.key,
            place.cluster_json.name: place.cluster_json,
        }
        files |= address_files(place)
        with (
            nullcontext(output_file)
            if recipient is None
            else sealed(output_file, recipient) as packed
        ):
            _write_archive(packed, about, rows, files, paths)
    return about


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSources:
    """Where the parts of a cluster are that a backup contains."""

    database: Database
    snapshots: Path
    key: Path


def kept_of(place: ClusterDir) -> BackupSources:
    """Return the database, the snapshots folder and the key file of the cluster in this
    directory.

    Raises: Conflict if there is no store.
    """
    settings = ClusterSettings.load(place) or ClusterSettings()
    key = Path(settings.key_file) if settings.key_file else place.key
    url = url_in(settings.store_file)
    if url is not None:
        return BackupSources(
            database=_server_database(url),
            snapshots=_snapshot_folder(settings.shared_state),
            key=key,
        )
    if not place.database.exists():
        raise Conflict(
            f"there is no cluster in {place.root}",
            hint="name the directory of the cluster with --dir DIR",
        )
    return BackupSources(
        database=SqliteDatabase(place.database),
        snapshots=place.root / SNAPSHOTS,
        key=key,
    )


def _server_database(url: str) -> Database:
    # psycopg is installed only if the store is a server
    from corral.store.postgres.database import PostgresDatabase

    return PostgresDatabase.at(url)


def _snapshot_folder(folder: str | None) -> Path:
    return Path(folder or "") / SNAPSHOTS


@contextmanager
def _in_no_hurry(
    database: Database, connection: Connection, *, write: bool
) -> Iterator[None]:
    """Run the body in a transaction without a limit on idle time, because files are
    read and written between two statements."""
    if connection.dialect.name == "postgresql":
        driver(connection).execute("SET idle_in_transaction_session_timeout = 0")
    with transaction(database, connection, write=write):
        yield


@contextmanager
def read_alone(database: Database, connection: Connection) -> Iterator[None]:
    """Run the body in a transaction that sees the store as of one moment. The store
    must have this version's schema.

    Raises: Unsupported for another schema, StoreTrouble.
    """
    with _in_words(database), _in_no_hurry(database, connection, write=False):
        _check_revision(
            connection.exec_driver_sql(_REVISION).scalar_one(), database.name
        )
        yield


@contextmanager
def _in_words(database: Database) -> Iterator[None]:
    """Run the body; raise database errors as errors of Corral."""
    try:
        yield
    except database.errors as error:
        raise database.named(error) from error
    except DBAPIError as error:
        inner = error.orig
        if not isinstance(inner, database.errors):
            raise
        raise database.named(inner) from error


_REVISION: Final = "SELECT version_num FROM alembic_version"


def _check_revision(revision: str, what: object) -> None:
    if revision != REVISION:
        raise Unsupported(
            f"{what} has schema version {revision}, but this version of Corral can "
            f"only back up version {REVISION}",
            hint="if the store is older, upgrade it: corral up; if it is newer, "
            "install the newer version of Corral",
        )


def _check_readable(revision: str, source: Path) -> None:
    if not backup.OLDEST <= revision <= REVISION:
        raise Unsupported(
            f"{source} has schema version {revision}, but this version of Corral can "
            f"only read backups of versions {backup.OLDEST} to {REVISION}",
            hint="restore the backup with the Corral version that wrote it, then run "
            "corral up with this version",
        )


def _write_archive(
    out: IO[bytes],
    about: About,
    rows: IO[bytes],
    files: dict[str, Path],
    snapshots: list[Path],
) -> None:
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        _add_member(tar, ABOUT, BytesIO(msgspec.json.encode(about)))
        _add_member(tar, ROWS, rows)
        for name, path in files.items():
            if path.exists():
                _add_member(tar, name, BytesIO(path.read_bytes()))
        for path in snapshots:
            with path.open("rb") as snapshot:
                _add_member(tar, SNAPSHOTS + path.name, snapshot)


def _add_member(tar: tarfile.TarFile, name: str, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = content.seek(0, os.SEEK_END), 0o600
    content.seek(0)
    tar.addfile(member, content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Into:
    """Where a restore puts the store: by default, in a file of the directory. With
    `store_file`, it is the empty database whose address is in that file, and
    `shared_state` is the folder that its heads share."""

    store_file: str | None = None
    shared_state: str | None = None


def restore(
    place: ClusterDir,
    source: Path,
    into: Into = Into(),  # noqa: B008 - frozen
    identity: X25519PrivateKey | None = None,
) -> About:
    """Restore the cluster of the backup in this directory.

    The directory gets its store only once the store is complete. Work that runs on its
    nodes continues, and is reported to the next head. Work that has ended since the
    backup may run again.

    Raises: Conflict if a head runs on the directory, or a store or another key is in
    it; Unsupported for another schema; StoreTrouble for a damaged file.
    """
    with _all_or_nothing(place), sole_head(place):
        for path in (
            place.database,
            place.database.with_name(place.database.name + "-wal"),
        ):
            if path.exists():
                raise Conflict(
                    f"{place.root} already contains a store",
                    hint="choose another directory with --dir, or move the store "
                    f"away: mv {path} /tmp",
                )
        try:
            with (
                opened_backup(source, identity, place.root) as content,
                tarfile.open(fileobj=content, mode="r:gz") as tar,
            ):
                return _extract_archive(tar, place, source, into)
        except FileNotFoundError:
            raise Conflict(
                f"there is no file {source}",
                hint="name a file that corral backup has written: corral restore FILE",
            ) from None
        except (tarfile.TarError, EOFError, OSError, KeyError, SealBroken) as error:
            raise _damaged_backup_error(source, str(error)) from error


@contextmanager
def _all_or_nothing(place: ClusterDir) -> Iterator[None]:
    """Create the directory for the body. If the body fails, remove what was created, so
    that the directory is as before."""
    was_there = place.root.exists()
    place.create()
    created_paths = [
        place.head_lock,
        place.key,
        place.cluster_json,
        place.root / SNAPSHOTS,
    ]
    created_paths += [*address_files(place).values(), place.tls]
    missing = [path for path in created_paths if not path.exists()]
    try:
        yield
    except BaseException:
        for path in missing:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if not was_there:
            with suppress(OSError):
                place.root.rmdir()
        raise


def _extract_archive(
    tar: tarfile.TarFile, place: ClusterDir, source: Path, into: Into
) -> About:
    about = _read_manifest(tar, source)
    rows = _open_member(tar, ROWS)
    digest = hashlib.sha256()
    while piece := rows.read(PIECE_BYTES):
        digest.update(piece)
    if digest.hexdigest() != about.sha256:
        raise _damaged_backup_error(source, "the checksum of its rows is wrong")
    names = tar.getnames()
    for path in (place.key, place.cluster_json):
        if path.name in names:
            content = _open_member(tar, path.name).read()
            _put_once(path, content, may_differ=path == place.cluster_json)
    put_address(tar, place)
    snapshots = [
        getmember
        for getmember in tar.getmembers()
        if getmember.name.startswith(SNAPSHOTS)
    ]
    if len(snapshots) != about.snapshots:
        raise _damaged_backup_error(
            source,
            f"it contains {len(snapshots)} snapshots instead of {about.snapshots}",
        )
    for member in snapshots:
        folder = (
            _snapshot_folder(into.shared_state)
            if into.store_file
            else place.root / SNAPSHOTS
        )
        _put_snapshot(tar, member, folder, source)
    _update_store_settings(place, into)
    if (url := url_in(into.store_file)) is not None:
        _fill_server(url, tar)
    else:
        _make_store(place.database, tar)
    return about


def _update_store_settings(place: ClusterDir, into: Into) -> None:
    """In the restored settings, set where the store is. All other settings are those of
    the backup."""
    cluster_settings = ClusterSettings.load(place)
    if cluster_settings is not None and (
        cluster_settings.store_file,
        cluster_settings.shared_state,
    ) != (
        into.store_file,
        into.shared_state,
    ):
        moved = replace(
            cluster_settings, store_file=into.store_file, shared_state=into.shared_state
        )
        replace(moved, name=None, key_file=None).save(place)


def _fill_server(url: str, tar: tarfile.TarFile) -> None:
    # psycopg is installed only if the store is a server
    from corral.store.postgres.database import PostgresDatabase
    from corral.store.postgres.opening import prepare

    database = PostgresDatabase.at(url)
    prepare(database, lambda: "restored")
    with (
        _in_words(database),
        closing(database.connect(write=True)) as connection,
        _in_no_hurry(database, connection, write=True),
    ):
        now = read_head(connection)
        if now.term or now.newest_wish:
            raise Conflict(
                f"{database.name} already contains a cluster",
                hint="create an empty database with createdb NAME, and write its "
                "address into the file of --store-file",
            )
        backup.fill(connection, _open_member(tar, ROWS))


def _read_manifest(tar: tarfile.TarFile, source: Path) -> About:
    try:
        about = msgspec.json.decode(_open_member(tar, ABOUT).read(), type=About)
    except msgspec.MsgspecError as error:
        raise _damaged_backup_error(source, str(error)) from error
    if about.form != FORM:
        raise Unsupported(
            f"{source} was written by Corral {about.corral} in a format that this "
            "version cannot read",
            hint=f"install Corral {about.corral} or a newer version",
        )
    _check_readable(about.revision, source)
    return about


def _open_member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    """Open a file of the backup.

    Raises: KeyError if the backup has no file of this name.
    """
    content = tar.extractfile(name)
    if content is None:
        raise KeyError(f"the file {name} is missing in the backup")
    return content


def _put_once(path: Path, content: bytes, *, may_differ: bool = False) -> None:
    """Write the file if it does not exist. An existing file is not changed.

    Raises: Conflict if the existing file has other content, unless `may_differ`.
    """
    if not path.exists():
        with made_whole(path) as file:
            file.write(content)
    elif not may_differ and path.read_bytes().split() != content.split():
        raise Conflict(
            f"{path} exists and differs from the same file in the backup; it was not "
            "replaced",
            hint=f"move the file away: mv {path} /tmp; or choose another directory "
            "with --dir",
        )


def _put_snapshot(
    tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, source: Path
) -> None:
    name = member.name.removeprefix(SNAPSHOTS)
    content = _open_member(tar, member.name).read()
    if f"{hashlib.sha256(content).hexdigest()}.tar.gz" != name:
        raise _damaged_backup_error(
            source, f"the checksum of the snapshot {name[:64]} is wrong"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _put_once(folder / name, content)


def _make_store(path: Path, tar: tarfile.TarFile) -> None:
    restored_path = path.with_name(path.name + ".restored")
    for stale_file in (
        restored_path,
        *(
            restored_path.with_name(f"{restored_path.name}-{suffix}")
            for suffix in ("wal", "shm")
        ),
    ):
        stale_file.unlink(missing_ok=True)
    SqliteStore(restored_path)
    database = SqliteDatabase(restored_path)
    with closing(database.connect(write=True)) as connection:
        with transaction(database, connection, write=True):
            backup.fill(connection, _open_member(tar, ROWS))
        raw_of(connection).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    os.link(restored_path, path)
    restored_path.unlink()
    sync_directory(path.parent)


def _damaged_backup_error(source: Path, why: str) -> StoreTrouble:
    return StoreTrouble(
        f"{source} is not a backup, or is damaged: {why}",
        hint="try an older backup: corral restore FILE",
    )
