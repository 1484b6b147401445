"""Which port a head serves on."""

import socket
from contextlib import suppress
from urllib.parse import urlsplit

from corral.boot.settings import ClusterDir, read_json
from corral.domain.errors import Conflict, CorralError
from corral.ports.log import Log

log = Log("corral.head")


def bind(place: ClusterDir, host: str, port: int = 0) -> socket.socket:
    """The port that was asked for, else that of the last head, so that agents and people find this
    one; else a free one. Raises: Conflict."""
    asked = port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in (asked,) if asked else (_last_port(place), 0):
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            return listening
        except OSError as error:
            listening.close()
            if asked:
                raise Conflict(
                    f"port {asked} of {host} cannot be served on: {error.strerror}",
                    hint="name another one: corral up --port NUMBER",
                ) from error
            if port == 0:
                raise Conflict(
                    f"no port can be had on {host}: {error.strerror}",
                    hint="keep to loopback: corral up --host 127.0.0.1",
                ) from error
            log.warning("port_taken", port=port, error=str(error))
    raise AssertionError("a free port is bound or refused")


def _last_port(place: ClusterDir) -> int:
    with suppress(CorralError, KeyError, TypeError, ValueError):
        return urlsplit(str((read_json(place.head_json) or {})["url"])).port or 0
    return 0
