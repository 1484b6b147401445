"""Connections of the gateway to its head, for requests that the head answers."""

import asyncio
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from corral.domain.errors import WrongHead
from corral.wire.head_proof import PIECE_BYTES, Challenge, needs_proof
from corral.wire.tls import fingerprint_of, trusting

BUFFER_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadAddress:
    """Address of the head, and what verifies it.

    Args:
        file: File of the head in the cluster's directory, with its present address.
        url: The address, if there is no file.
        fingerprint: Of the head's certificate; "": it is verified by its authority.
        trusted: Certificates that verify the head, in addition to those of the machine.
    """

    file: Path | None = None
    url: str = ""
    fingerprint: str = ""
    trusted: Path | None = None

    def present_url(self) -> str:
        """Return the present address. Raises: OSError, ValueError."""
        if self.file is None:
            return self.url.rstrip("/")
        return str(json.loads(self.file.read_bytes())["url"]).rstrip("/")


@dataclass(frozen=True, slots=True)
class HeadConnection:
    """Open connection to the head, which has proven itself. `host`: for the header."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    host: bytes


async def connect_to_head(address: HeadAddress, key: str) -> HeadConnection:
    """Connect to the head, and verify it before the key is sent.

    Raises: OSError, ValueError, and WrongHead, InsecureHead or Unauthorised if the key
    must not be sent.
    """
    url = address.present_url()
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname or "",
        parts.port or (443 if is_tls else 80),
        limit=BUFFER_BYTES,
        ssl=_context_of(address) if is_tls else None,
    )
    try:
        if is_tls:
            _check_fingerprint(writer, address)
        elif needs_proof(url):
            await _prove(reader, writer, url, key)
    except BaseException:
        writer.transport.abort()
        raise
    return HeadConnection(reader, writer, parts.netloc.encode())


def _context_of(address: HeadAddress) -> ssl.SSLContext:
    trusted = address.trusted
    context = trusting(trusted if trusted is not None and trusted.exists() else None)
    if address.fingerprint:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # see _check_fingerprint
    return context


def _check_fingerprint(writer: asyncio.StreamWriter, address: HeadAddress) -> None:
    if not address.fingerprint:
        return
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if fingerprint_of(certificate or b"") != address.fingerprint.lower():
        raise WrongHead("the certificate of the head has another fingerprint")


async def _prove(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str, key: str
) -> None:
    """Let the head prove that it has the key."""
    peer = writer.get_extra_info("peername")[:2]
    challenge = Challenge.by_token(url, key, peer)
    writer.write(challenge.request)
    while not challenge.feed(await reader.read(PIECE_BYTES)):
        pass
