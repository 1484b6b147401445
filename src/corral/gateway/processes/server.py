"""Start of a gateway: its socket, its workers, or itself as the only one."""

import logging
import os
import resource
import sys
from contextlib import suppress

import uvloop

from corral.gateway.processes.certificate_watch import CertificateWatch
from corral.gateway.processes.listening_socket import (
    WORKER_VARIABLE,
    inherited_socket,
    open_listening_socket,
)
from corral.gateway.processes.settings import GatewaySettings
from corral.gateway.processes.worker import GatewayWorker
from corral.gateway.processes.worker_group import WorkerGroup
from corral.gateway.routes_file import read_routes_file


def run_gateway(settings: GatewaySettings) -> int:
    """Serve until a signal ends the gateway; return the exit code.

    Raises: RoutesInvalid, CertificateInvalid, and Conflict when the port is taken.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s gateway[%(process)d]: %(message)s",
    )
    read_routes_file(settings.routes, host=settings.host)
    if settings.tls_certificate is not None and settings.tls_key is not None:
        CertificateWatch(settings.tls_certificate, settings.tls_key)
    _raise_descriptor_limit()
    listening = inherited_socket(os.environ)
    if listening is None:
        listening = open_listening_socket(settings.host, settings.port)
    is_worker = WORKER_VARIABLE in os.environ
    if not is_worker:
        # also one worker has a parent: it keeps the socket while the worker is replaced
        return uvloop.run(WorkerGroup(settings, listening).run())
    share = 1.0 / settings.workers
    uvloop.run(GatewayWorker(settings, listening, share=share).run())
    return 0


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
