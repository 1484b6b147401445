"""Choice of the port of a head."""

import errno
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from corral.boot.settings import ClusterDir, is_loopback, read_json
from corral.domain.errors import Conflict, CorralError
from corral.ports.log import HeadLogger

log = HeadLogger("corral.head")


def bind(place: ClusterDir, host: str, port: int = 0) -> socket.socket:
    """Return a socket that is bound to a port. With `port`, it is that port. Otherwise
    it is the previous head's port, so that agents and clients find this head, or else a
    free port.

    Raises: Conflict if the requested port cannot be used, or the previous head's port
    cannot be used although machines may have joined there.
    """
    if port:
        return _asked_for(host, port)
    if previous_port := last_port(place):
        try:
            return _bind_socket(host, previous_port)
        except OSError as error:
            if not is_loopback(host):
                raise _port_unusable_error(host, previous_port, error) from error
            log.warning("port_taken", port=previous_port, error=str(error))
    try:
        return _bind_socket(host, 0)
    except OSError as error:
        raise Conflict(
            f"the head cannot listen on {host}: {error.strerror}",
            hint="serve only this machine: corral up --host 127.0.0.1",
        ) from error


def _bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket to the address and port.

    Raises: OSError.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError:
        listening.close()
        raise
    return listening


def _asked_for(host: str, port: int) -> socket.socket:
    try:
        return _bind_socket(host, port)
    except OSError as error:
        raise Conflict(
            f"the head cannot listen on port {port} of {host}: {error.strerror}",
            hint="choose another port: corral up --port NUMBER",
        ) from error


def _port_unusable_error(host: str, port: int, error: OSError) -> Conflict:
    """Return the error for a port that cannot be used: agents and clients would not
    find the head elsewhere."""
    if error.errno == errno.EADDRNOTAVAIL:
        return Conflict(
            f"this machine does not have the address {host}, at which agents and "
            "clients expect the head",
            hint="give this machine that address; or use another address and join all "
            "machines again: corral up --host ADDRESS",
        )
    return Conflict(
        f"agents and clients expect the head on port {port} of {host}, but it cannot "
        f"listen there: {error.strerror}",
        hint=f"find the program that uses the port: ss -tlnp 'sport = :{port}'; or use "
        "another port and join all machines again: corral up --port NUMBER",
    )


def last_port(place: ClusterDir) -> int:
    """Return the port of the last head of this directory; 0 if it is not known."""
    with suppress(CorralError, KeyError, TypeError, ValueError):
        return urlsplit(str((read_json(place.head_json) or {})["url"])).port or 0
    return 0
