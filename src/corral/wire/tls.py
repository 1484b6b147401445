"""TLS trust: with which certificates clients verify a head."""

import ssl
from hashlib import sha256
from pathlib import Path


def trusting(file: str | Path | None, *, system: bool = True) -> ssl.SSLContext:
    """Return a TLS context that trusts the certificates of the PEM file and, with
    `system`, those of the machine.

    A certificate in the file is also trusted itself, whatever authority has signed it.
    Raises: OSError (ssl.SSLError is one) if the file holds no certificate.
    """
    context = (
        ssl.create_default_context()
        if system
        else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    if file is not None:
        context.load_verify_locations(cafile=str(file))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def fingerprint_of(certificate: bytes) -> str:
    """Return the SHA-256 fingerprint of a certificate in DER format: `sha256:` and 64
    hexadecimal digits in lower case. `openssl x509 -fingerprint -sha256` prints the
    same digits in upper case, separated by colons."""
    return f"sha256:{sha256(certificate).hexdigest()}"
