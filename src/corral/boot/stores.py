"""Choice of a head's store, and the settings that heads on one store must have in
common."""

import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from corral.boot.declared_settings import STORE_VARIABLE
from corral.boot.extras import check_extra
from corral.boot.settings import ClusterDir, ClusterSettings, once
from corral.domain.errors import Conflict, SpecInvalid
from corral.ports.store import Store

IDENTITY: Final = "identity"
MARK: Final = ".corral-state"


def open_store(
    place: ClusterDir,
    url: str | None,
    fresh_id: Callable[[], str],
    seal: Callable[[str], str] | None = None,
) -> Store:
    """Return the store in the directory, or in the PostgreSQL database at `url`.
    `fresh_id` makes the id of a new store; `seal` seals links of the audit log's chain.

    Only the store that a head uses is imported, with its driver; `corral up`, which
    calls this module too, imports none.

    Raises: the errors of the stores; Conflict if a URL is given and the directory has a
    store of its own.
    """
    if url is None:
        from corral.store.sqlite import SqliteStore

        return SqliteStore(place.database, fresh_id=fresh_id, seal=seal)
    if place.database.exists():
        raise Conflict(
            f"{place.root} already contains a store with recorded jobs, so "
            "--store-file cannot be used with it",
            hint="use another directory for this head: corral up --dir DIR "
            "--store-file FILE",
        )
    check_extra("postgres", "a store that several heads share")
    from corral.store.postgres import PostgresStore

    return PostgresStore(url, fresh_id=fresh_id, seal=seal)


def url_in(file: str | None) -> str | None:
    """Return the address of the database that several heads share, from this file; None
    if the head has a store file of its own.

    Raises: Conflict when the file cannot be read, or others may read it too.
    """
    if file is None:
        return None
    path = Path(file)
    try:
        mode, text = stat.S_IMODE(path.stat().st_mode), path.read_text().strip()
    except (OSError, ValueError) as error:
        raise Conflict(
            f"the file {path} with the address of the store cannot be read: {error}",
            hint="write the address: (umask 077; echo "
            "postgresql://USER:PASSWORD@HOST/corral > FILE)",
        ) from error
    if mode & 0o077:
        raise Conflict(
            f"{path} contains the password of the store, but other users may read it "
            f"(mode {mode:04o})",
            hint=f"run: chmod 600 {path}",
        )
    if not text:
        raise Conflict(
            f"the store file {path} is empty",
            hint="write the address of the database into the file: "
            "postgresql://USER:PASSWORD@HOST/corral",
        )
    return text


async def agree(store: Store, place: ClusterDir, settings: ClusterSettings) -> None:
    """Check that this head's settings equal those that all heads of the store must have
    in common. Then reserve the head's name. The name comes last, because a head that is
    refused must not keep it.

    Raises: Conflict if the settings of the other heads differ, StoreTrouble.
    """
    folder = Path(settings.shared_state or "")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark = once(folder / MARK, secrets.token_hex(16).encode()).decode()
    except OSError as error:
        raise Conflict(
            f"the folder {folder} of --shared-state cannot be used: {error.strerror}",
            hint="name a directory that all heads can write to: corral up "
            "--shared-state DIR",
        ) from error
    if await store.agree("state", mark) != mark:
        raise Conflict(
            f"--shared-state {folder} is not the directory that the other heads share: "
            f"its file {MARK} is not theirs",
            hint="mount the same directory on each head's machine, and name it: "
            "corral up --shared-state DIR",
        )
    own_identity = once(place.root / IDENTITY, secrets.token_hex(16).encode()).decode()
    if await store.agree(f"head {settings.head_name}", own_identity) != own_identity:
        raise Conflict(
            f"another head already has the name {settings.head_name}; every head needs "
            "its own name",
            hint="choose another name: corral up --name NAME",
        )


def check_several(settings: ClusterSettings) -> None:
    """Check the settings with which several heads share one store. Raises: SpecInvalid
    if they do not fit together."""
    file = settings.store_file
    if file is not None and "://" in file:
        raise SpecInvalid(
            "--store-file needs a file instead of an address: all users of this "
            "machine could see the password on the command line",
            hint="write the address into a file, then run: chmod 600 FILE; corral up "
            "--store-file FILE",
        )
    if file is None and (settings.name or settings.shared_state):
        raise SpecInvalid(
            "--name and --shared-state are only valid with --store-file, for several "
            "heads that share a store",
            hint="name the store: corral up --store-file FILE, or set "
            f"{STORE_VARIABLE}",
        )
    if file is not None and not settings.shared_state:
        raise SpecInvalid(
            "--shared-state is missing: heads that share a store need a common "
            "directory for workdirs and logs",
            hint="add it: corral up --store-file FILE --shared-state DIR",
        )
