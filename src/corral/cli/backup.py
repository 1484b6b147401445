"""The commands backup and restore."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from corral.boot.clock import SystemClock
from corral.boot.settings import ClusterSettings
from corral.boot.stores import check_several
from corral.cli.cluster import check_ours
from corral.cli.head_options import Change, Common
from corral.cli.option_types import EncryptionKey
from corral.cli.printing import note, print_json, say
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.boot.backup import About

_SENSITIVE = (
    "the backup contains the keys of the cluster's secrets and of its certificate "
    "unencrypted: keep it where only you can read it, or encrypt it: corral backup "
    "--recipient KEY"
)
_SEALED = "the backup is encrypted: only the recipient's identity file decrypts it"


def backup(
    file: Annotated[Path | None, Parameter(show_default=False)] = None,
    /,
    *,
    recipient: EncryptionKey | None = None,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Write the whole cluster into one file; its head may run meanwhile.

    The file holds jobs and their history, queues, users and tokens (as hashes), secrets
    (encrypted) with their key, the head's address and certificate, and the workdirs of
    unfinished jobs. It does not hold logs and checkpoints.

    Args:
        file: File to write (default: corral-DATE-TIME.backup in the current directory).
        recipient: Encrypt the backup for this public key, or for the public key in this
            file (default: no encryption). To create a key pair: corral key generate.
    """
    from corral.boot.backup import back_up
    from corral.boot.backup_sealing import recipient_of

    check_ours(common, "backup")
    now = SystemClock().wall()
    target = file or Path(
        time.strftime("corral-%Y%m%d-%H%M%S.backup", time.localtime(now))
    )
    key = None if recipient is None else recipient_of(recipient)
    about = back_up(common.place, target.absolute(), now, key)
    if common.json:
        print_json(
            {"file": str(target), "sealed": key is not None, **_backup_fields(about)}
        )
        return
    say(f"{target}: {_backup_summary(about)}")
    note(_SEALED if key is not None else _SENSITIVE)


def restore(
    file: Path,
    /,
    *,
    store_file: Path | None = None,
    shared_state: Path | None = None,
    identity: Path | None = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Restore the cluster of a backup into a directory that has no cluster; `corral up`
    then starts the cluster.

    Agents and clients find the new head at the address of the last one, and running
    jobs continue. Jobs that ended since the backup may run again, from their newest
    checkpoint; jobs submitted since then are unknown.

    Args:
        file: Backup file to restore.
        store_file: File (mode 0600) with the address of an empty PostgreSQL database to
            restore into (default: the directory itself).
        shared_state: Directory for workdirs and logs that all heads can access;
            required with --store-file.
        identity: Identity file from corral key generate; required for a backup that was
            encrypted with --recipient.
    """
    from corral.boot.backup import Into
    from corral.boot.backup import restore as make
    from corral.boot.backup_sealing import identity_of

    check_ours(common, "restore")
    paths_given = (
        str(path.absolute()) if path else None for path in (store_file, shared_state)
    )
    into = Into(**dict(zip(("store_file", "shared_state"), paths_given, strict=True)))
    check_several(
        ClusterSettings(store_file=into.store_file, shared_state=into.shared_state)
    )
    about = make(common.place, file, into, identity_of(identity) if identity else None)
    if common.json:
        print_json({"dir": str(common.place.root), **_backup_fields(about)})
        return
    say(f"restored in {common.place.root}: {_backup_summary(about)}")
    dir_option = f" --dir {common.place.root}" if common.dir else ""
    note(f"to start the cluster, run: corral up{dir_option}")


def _backup_fields(about: "About") -> dict[str, Any]:
    shown_facts = ("cluster", "at", "jobs", "unfinished", "rows", "snapshots", "corral")
    return {name: getattr(about, name) for name in shown_facts}


def _backup_summary(about: "About") -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about.at))
    jobs = counted(about.jobs, "job")
    return f"the cluster as of {when}, {jobs}, {about.unfinished} of them unfinished"
