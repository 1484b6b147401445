"""TLS trust of those who call a head."""

import ssl
from hashlib import sha256
from pathlib import Path


def trusting(file: str | Path | None, *, system: bool = True) -> ssl.SSLContext:
    """Trust what the PEM file vouches for and, with `system`, the machine's own list.

    A certificate in the file vouches for itself too, whoever has signed it.
    Raises: OSError (ssl.SSLError is one) when the file holds no certificate.
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
    """Return the fingerprint of a certificate in DER: sha256: and 64 hexadecimal
    digits, as openssl x509 -fingerprint."""
    return f"sha256:{sha256(certificate).hexdigest()}"
