"""File in the cluster's directory that holds the address of the head."""

import json

from corral.api import ApiSettings
from corral.boot.settings import ClusterDir, once, write_atomically
from corral.ports.log import HeadLogger

log = HeadLogger("corral.head")


def announce(place: ClusterDir, about: ApiSettings) -> None:
    """Write the head's address into its file, once the head serves."""
    announcement = {
        name: getattr(about, name) for name in ("pid", "url", "version", "started_at")
    }
    write_atomically(place.head_json, json.dumps(announcement))
    log.info("serving", **announcement)


def keep_announced(place: ClusterDir, about: ApiSettings, token: str) -> None:
    """Write the head's address and token files again if they were removed.

    Without these files, the head could not be found or stopped.
    """
    if not place.head_json.exists():
        announce(place, about)
    once(place.token, token.encode())
