"""Certificate of a gateway that serves TLS: loaded, and loaded again when it changes."""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from corral.domain.errors import SpecInvalid

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 1.0


class CertificateInvalid(SpecInvalid):
    """The certificate or its key cannot be used."""

    code = "certificate_invalid"


class CertificateWatch:
    """Context with which new connections are served. A renewed certificate is taken
    when both files have changed and fit; connections that are open keep theirs.

    Args:
        certificate: PEM file of the certificate with its chain.
        key: PEM file of its key.

    Raises: CertificateInvalid.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._mark = self._current_mark()
        self._timer: asyncio.TimerHandle | None = None
        try:
            self.context = self._load()
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise CertificateInvalid(
                f"the certificate {certificate} with the key {key} cannot be used: "
                f"{_reason(error)}",
                hint="give --tls-cert and --tls-key the PEM files of one certificate",
            ) from None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to look for changes."""
        self._timer = loop.call_later(WATCH_SECONDS, self._look, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificate, self._key, _no_password)
        return context

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self.start(loop)
        mark = self._current_mark()
        if mark == self._mark:
            return
        self._mark = mark
        try:
            # a context that has failed to load a pair serves neither: try another first
            self._load()
            self.context.load_cert_chain(self._certificate, self._key, _no_password)
        except (OSError, ValueError) as error:
            log.warning("the certificate stays as it is: %s", _reason(error))
            return
        log.info("the certificate has changed and is in use")

    def _current_mark(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_mark_of(path) for path in (self._certificate, self._key))


def unverified_context() -> ssl.SSLContext:
    """Return a context for requests to a gateway of this machine. Its certificate may
    have other names than the address that listens."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _mark_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
