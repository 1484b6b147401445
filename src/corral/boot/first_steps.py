"""First steps of a head on its store: agreement with the other heads, and registration
of the first users."""

from collections.abc import Callable
from pathlib import Path

from corral.boot.clock import SystemClock
from corral.boot.directory_tokens import DirectoryToken
from corral.boot.initial_tokens import record_start
from corral.boot.key_rotation import HeadKeys
from corral.boot.monitoring import Prometheus
from corral.boot.secret_encryption import KeyRing
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.stores import agree, open_store, url_in
from corral.boot.tls import agree_on_authority
from corral.ports.store import Store


def open_with_keys(
    place: ClusterDir, settings: ClusterSettings, clock: SystemClock
) -> tuple[Store, HeadKeys]:
    """Open the store, and load the key ring with which the store's values are
    encrypted. Return both.

    Raises: KeyTrouble, Conflict.
    """
    ring = KeyRing.load(Path(settings.key_file) if settings.key_file else place.key)
    store = open_store(
        place, url_in(settings.store_file), clock.fresh_id, ring.seal_link
    )
    several = settings.store_file is not None
    return store, HeadKeys(store=store, ring=ring, wall=clock.wall, several=several)


async def begin(
    store: Store,
    place: ClusterDir,
    settings: ClusterSettings,
    keys: HeadKeys,
    prometheus: Prometheus | None,
    clock: SystemClock,
    hide: Callable[[str], None],
) -> list[DirectoryToken]:
    """Agree with the other heads on settings and keys. Register the tokens of the
    directory: the admin's, and that of the directory's Prometheus if it has one. Return
    these tokens, the admin's first.

    Raises: Conflict, StoreTrouble.
    """
    await keys.begin()
    if settings.store_file:
        await agree(store, place, settings)
        await agree_on_authority(store, place, settings, keys.ring, clock.wall())
    admin = DirectoryToken.of_admin(store, place.token, clock.wall, hide)
    await admin.begin()
    await record_start(store, settings.head_name, keys.ring.check, clock.wall())
    if prometheus is None:
        return [admin]
    monitor = DirectoryToken.of_monitor(store, prometheus.token, clock.wall, hide)
    # a process on the last head's port may have been sent it
    await monitor.begin(afresh=True)
    return [admin, monitor]
