"""Listening socket of a gateway: opened here, or inherited from a predecessor."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from corral.domain.errors import Conflict, SpecInvalid

BACKLOG: Final = 4096
LISTEN_VARIABLE: Final = "CORRAL_GATEWAY_LISTEN_FD"
READY_VARIABLE: Final = "CORRAL_GATEWAY_READY_FD"
WORKER_VARIABLE: Final = "CORRAL_GATEWAY_WORKER"
PARENT_VARIABLE: Final = "CORRAL_GATEWAY_PARENT_FD"
METRICS_VARIABLE: Final = "CORRAL_GATEWAY_METRICS"


def open_listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises: Conflict, SpecInvalid."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise SpecInvalid(f"{host} is not the address of a host") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise Conflict(
            f"the gateway cannot listen on {host}, port {port}: {error.strerror}",
            hint="give another --host or --port",
        ) from None
    listening.setblocking(False)
    return listening


def inherited_socket(environment: Mapping[str, str]) -> socket.socket | None:
    """Return the listening socket that a predecessor or parent passed; None without
    one."""
    text = environment.get(LISTEN_VARIABLE, "")
    return socket.socket(fileno=int(text)) if text.isdigit() else None


def report_ready(environment: Mapping[str, str]) -> None:
    """Report to the process that started this one that requests are accepted."""
    text = environment.get(READY_VARIABLE, "")
    if text.isdigit():
        os.write(int(text), b"1")
        os.close(int(text))


def parent_descriptor(environment: Mapping[str, str]) -> int | None:
    """Return the descriptor that ends with the parent; None without a parent."""
    text = environment.get(PARENT_VARIABLE, "")
    return int(text) if text.isdigit() else None


def start_process(
    listening: socket.socket,
    *,
    variables: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
) -> tuple[subprocess.Popen[bytes], int]:
    """Start this program again with the listening socket.

    Args:
        variables: Environment of the new process, in addition to this one's.
        descriptors: Descriptors that the process gets in addition to the socket's.

    Returns: The process, and a descriptor that gets a byte when it accepts requests,
        and its end when it has died before.
    """
    ready, reports = os.pipe()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in (WORKER_VARIABLE, PARENT_VARIABLE, METRICS_VARIABLE)
    }
    environment[LISTEN_VARIABLE] = str(listening.fileno())
    environment[READY_VARIABLE] = str(reports)
    environment.update(variables or {})
    passed = [listening.fileno(), reports, *descriptors]
    try:
        process = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]],
            env=environment,
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
        )
    except OSError:
        os.close(ready)
        raise
    finally:
        os.close(reports)
    os.set_blocking(ready, False)
    return process, ready
