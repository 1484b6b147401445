"""The command gateway, which serves the replicas of services under one address."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from corral.cli.error_output import Usage
from corral.cli.option_types import Address, Fingerprint, TokenText, Url, WholeNumber

if TYPE_CHECKING:
    from corral.gateway.head.head_connection import HeadAddress
    from corral.gateway.processes.settings import GatewaySettings

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8480


def gateway(
    *,
    routes: Annotated[Path | None, Parameter(name="--routes")] = None,
    join: Url | None = None,
    token: TokenText | None = None,
    fingerprint: Fingerprint = "",
    host: Address = DEFAULT_HOST,
    port: WholeNumber = DEFAULT_PORT,
    workers: WholeNumber = 1,
    counters_key_file: Path | None = None,
    record: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    head_file: Path | None = None,
    head_ca: Path | None = None,
) -> int:
    """Serve the replicas of services to OpenAI clients.

    Args:
        routes: JSON file of services, replicas and callers.
        join: Address of a head. The gateway serves its services, and goes on with the
            last state while the head is away.
        token: Token of an operator there (default: the variable CORRAL_TOKEN).
        fingerprint: Fingerprint of the head's certificate. Without it, this machine
            must already trust the certificate.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        workers: Processes that share the port; one for each core is the most useful.
        counters_key_file: File with the key that reads /internal/counters.
        record: File in which the process that listens is recorded.
        tls_cert: PEM file of a certificate with its chain, to serve HTTPS. A renewed
            one is taken when the file changes.
        tls_key: PEM file of the certificate's key.
        head_file: File with the address of the head that answers requests for files
            and batches, as the cluster's directory has it.
        head_ca: Certificates that verify this head.
    """
    from corral.gateway.processes.server import run_gateway
    from corral.gateway.processes.settings import GatewaySettings

    if (routes is None) == (join is None):
        raise Usage(
            "give either --routes or --join",
            hint="run: corral gateway --routes FILE; or: corral gateway --join URL "
            "--token TOKEN",
        )
    settings = GatewaySettings(
        routes=routes or Path(),
        host=host,
        port=port,
        workers=workers,
        counters_key=_read_key(counters_key_file),
        record=record,
        tls_certificate=tls_cert,
        tls_key=tls_key,
        head=_head_at(head_file, head_ca),
    )
    if join is not None:
        settings = _joined(settings, join, token, fingerprint)
    return run_gateway(settings)


def _read_key(path: Path | None) -> bytes | None:
    """Return the key that reads the counters; None without a file."""
    from corral.gateway.counting.counters import read_counters_key

    return None if path is None else read_counters_key(path)


def _head_at(file: Path | None, trusted: Path | None) -> "HeadAddress | None":
    """Return the head whose address is in a file; None without one."""
    from corral.gateway.head.head_connection import HeadAddress

    return None if file is None else HeadAddress(file=file, trusted=trusted)


def _joined(
    settings: "GatewaySettings", url: str, token: str | None, fingerprint: str
) -> "GatewaySettings":
    """Begin to fetch the routes of a head, and return the settings with their file.

    Raises: Usage without a token; as `JoinedGateway.begin`.
    """
    from corral.boot.joined_gateway import (
        JoinedGateway,
        JoinedHead,
        default_trusted,
        joined_folder,
    )
    from corral.boot.settings import ClusterDir
    from corral.gateway.counting.counters import read_counters_key
    from corral.gateway.head.head_connection import HeadAddress

    token = token or os.environ.get("CORRAL_TOKEN")
    if not token:
        raise Usage(
            "--token is missing: a gateway of another machine needs the token of an "
            "operator",
            hint="on the head: corral token create --role operator; here: corral "
            f"gateway --join {url} --token TOKEN",
        )
    head = JoinedHead(
        url=url, token=token, fingerprint=fingerprint, trusted=default_trusted()
    )
    folder = joined_folder(ClusterDir.chosen(None).root, settings.port)
    joined = JoinedGateway(head, folder)
    joined.begin()
    return replace(
        settings,
        routes=joined.routes_file,
        counters_key=read_counters_key(joined.key_file),
        record=joined.record_file,
        head=HeadAddress(url=url, fingerprint=fingerprint, trusted=head.trusted),
    )
