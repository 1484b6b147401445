"""Settings of a gateway."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.domain.errors import SpecInvalid
from corral.gateway.head.head_connection import HeadAddress

MOST_WORKERS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Settings of one gateway.

    Args:
        routes: Routes file, which is read again when it has changed.
        port: Port to listen on; 0 takes a free one.
        workers: Processes that share the listening socket.
        drain_seconds: Most seconds for requests under way after SIGTERM.
        hand_over_seconds: Most seconds for requests under way after a successor has
            taken the listening socket.
        counters_key: Key with which the counters are read; None: they are not served.
        record: File in which the process that listens is recorded; None: nowhere.
        tls_certificate: PEM file of the certificate with its chain; None: no TLS.
        tls_key: PEM file of the certificate's key.
        head: Head that answers requests for files and batches; None: no head does.
    """

    routes: Path
    host: str
    port: int
    workers: int = 1
    drain_seconds: float = 30.0
    hand_over_seconds: float = 600.0
    counters_key: bytes | None = None
    record: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    head: HeadAddress | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise SpecInvalid(f"a port is a number from 0 to 65535, not {self.port}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise SpecInvalid(
                "TLS needs a certificate and its key",
                hint="give both --tls-cert and --tls-key",
            )
        if not 1 <= self.workers <= MOST_WORKERS:
            raise SpecInvalid(
                f"workers is a number from 1 to {MOST_WORKERS}, not {self.workers}"
            )
