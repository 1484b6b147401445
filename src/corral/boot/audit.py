"""Verification of the audit log's hash chain with the cluster's keys. The head may run
meanwhile."""

from contextlib import closing

from corral.boot.backup import kept_of, read_alone
from corral.boot.secret_encryption import KeyRing
from corral.boot.settings import ClusterDir
from corral.domain.audit_chain import Anchor, ChainReport, walk_chain
from corral.store.audit import chain_entries


def verify_log(place: ClusterDir, anchor: Anchor | None) -> ChainReport:
    """Verify the audit log of the cluster in this directory, as of one moment.

    Raises: Conflict if there is no store; KeyTrouble, StoreTrouble, Unsupported.
    """
    backup_sources = kept_of(place)
    keys = KeyRing.load(backup_sources.key)
    with (
        closing(backup_sources.database.connect(write=False)) as connection,
        read_alone(backup_sources.database, connection),
    ):
        return walk_chain(chain_entries(connection), keys.check_link, anchor)
