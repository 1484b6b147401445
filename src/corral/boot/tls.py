"""The head's certificate: the configured one, or else one that the head creates itself.

A joining machine receives the fingerprint of the head's certificate, and from then on
trusts the authority that signed it. The certificate can therefore be renewed without
another prompt.
"""

import asyncio
import os
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from corral.agent.own_address import LOOPBACK, address_towards, own_addresses
from corral.boot.secret_encryption import KeyRing
from corral.boot.settings import (
    ClusterDir,
    ClusterSettings,
    is_any,
    is_loopback,
    write_atomically,
)
from corral.ports.log import HeadLogger
from corral.ports.store import Store
from corral.wire.tls import fingerprint_of

DAYS: Final = 397  # as long as a certificate lasts
RENEW_DAYS: Final = 30  # before its end
AUTHORITY_DAYS: Final = 3650  # then machines have to join again
LOOK_SECONDS: Final = 3600.0
# an unused address (RFC 5737): finds the way out
ELSEWHERE: Final = "https://192.0.2.1"
CA_KEY: Final = "ca.key"
HEAD_KEY: Final = "head.key"
HEAD_CERTIFICATE: Final = "head.pem"
AUTHORITY: Final = "authority"  # what heads agree on
EARLIER: Final = timedelta(days=30)  # clocks of other machines may be behind
log = HeadLogger("corral.boot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM files of the head. `trusted` is the certificate that verifies `certificate`,
    which includes its chain."""

    certificate: Path
    key: Path
    trusted: Path

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the current certificate."""
        pem = self.certificate.read_text()
        return fingerprint_of(
            ssl.PEM_cert_to_DER_cert(pem[: pem.index(_END) + len(_END)])
        )


_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


def tls_of(place: ClusterDir, settings: ClusterSettings, now: float) -> Tls | None:
    """Return the TLS files of the head; None if it serves on loopback without a
    configured certificate.

    Raises: OSError when the head's own certificate cannot be written.
    """
    if settings.tls_certificate and settings.tls_key:
        path = Path(settings.tls_certificate)
        return Tls(certificate=path, key=Path(settings.tls_key), trusted=path)
    return own_tls(place, names_of(settings.host), now) if makes_own(settings) else None


def files_of(place: ClusterDir, settings: ClusterSettings) -> Tls | None:
    """Return the TLS files of the head as `tls_of` does, without creating any."""
    if settings.tls_certificate and settings.tls_key:
        path = Path(settings.tls_certificate)
        return Tls(certificate=path, key=Path(settings.tls_key), trusted=path)
    if not makes_own(settings):
        return None
    return Tls(
        certificate=place.tls / HEAD_CERTIFICATE,
        key=place.tls / HEAD_KEY,
        trusted=place.trusted,
    )


def own_files(place: ClusterDir) -> dict[str, Path]:
    """Return the files, by their names in a backup, with which agents and clients
    recognise a head that creates its own certificate: the authority of the cluster, and
    the certificate and key that it signed."""
    files = [
        place.trusted,
        *(place.tls / name for name in (CA_KEY, HEAD_CERTIFICATE, HEAD_KEY)),
    ]
    return {str(file.relative_to(place.root)): file for file in files}


def makes_own(settings: ClusterSettings) -> bool:
    return not (settings.tls_certificate and settings.tls_key) and not is_loopback(
        settings.host
    )


def trusted_of(place: ClusterDir, settings: ClusterSettings) -> str | None:
    """Return the certificate file that the cluster's own agents and clients trust; None
    on loopback without a configured certificate."""
    if settings.tls_certificate:
        return settings.tls_certificate
    return None if is_loopback(settings.host) else str(place.trusted)


def names_of(host: str) -> tuple[str, ...]:
    """Return every name and address under which clients may reach a head that serves on
    `host`; for all addresses of the machine, its own ones."""
    own_names = {"localhost", "127.0.0.1", "::1", gethostname(), *own_addresses()}
    return tuple(sorted(own_names if is_any(host) else own_names | {host}))


def host_of(settings: ClusterSettings) -> str:
    """Return the name or address under which other machines reach the head."""
    if not is_any(settings.host):
        return settings.host
    if settings.tls_certificate:
        exact_names = [
            certificate_name
            for certificate_name in names_in(Path(settings.tls_certificate))
            if "*" not in certificate_name
        ]
        if exact_names:
            return exact_names[0]
    with suppress(OSError):
        return address_towards(ELSEWHERE)
    return next(iter(own_addresses()), LOOPBACK)


def names_in(certificate: Path) -> list[str]:
    """Return the names and addresses that a certificate covers; an empty list if the
    file cannot be read."""
    try:
        parsed_certificate = x509.load_pem_x509_certificate(certificate.read_bytes())
        subject_alternative_name = (
            parsed_certificate.extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            ).value
        )
    except (OSError, ValueError, x509.ExtensionNotFound):
        return []
    addresses = subject_alternative_name.get_values_for_type(x509.IPAddress)
    return [
        *subject_alternative_name.get_values_for_type(x509.DNSName),
        *map(str, addresses),
    ]


def own_tls(place: ClusterDir, names: Sequence[str], now: float) -> Tls:
    """Return a certificate for these names, signed by the cluster's own authority. An
    existing certificate is kept while it covers all names and is valid for another
    month. Raises: OSError."""
    folder = place.tls
    folder.mkdir(mode=0o700, exist_ok=True)
    tls = Tls(
        certificate=folder / HEAD_CERTIFICATE,
        key=folder / HEAD_KEY,
        trusted=place.trusted,
    )
    moment = datetime.fromtimestamp(now, UTC)
    authority_key, authority = _authority(folder / CA_KEY, place.trusted, moment)
    if not _is_certificate_valid(tls, authority, names, moment):
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _sign_head_certificate(key, names, authority_key, authority, moment)
        write_atomically(
            folder / HEAD_CERTIFICATE,
            _certificate_pem(signed) + _certificate_pem(authority),
        )
        write_atomically(folder / HEAD_KEY, _key_pem(key))
        log.info(
            "certificate_made", names=list(names), until=str(signed.not_valid_after_utc)
        )
    return tls


def _authority(
    key_file: Path, file: Path, now: datetime
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    with suppress(OSError, ValueError):
        stored_key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        if isinstance(stored_key, ec.EllipticCurvePrivateKey) and _is_pair(
            stored_key, certificate
        ):
            return stored_key, certificate
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"Corral {os.urandom(4).hex()}")]
    )
    certificate = (
        _certificate_builder(name, name, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    write_atomically(key_file, _key_pem(key))
    write_atomically(file, _certificate_pem(certificate))
    return key, certificate


async def agree_on_authority(
    store: Store,
    place: ClusterDir,
    settings: ClusterSettings,
    keys: KeyRing,
    now: float,
) -> None:
    """Agree on one authority for all heads of the store that create their own
    certificates: that of the first head, sealed in the store.

    Whoever trusts one head thus trusts all of them, and the heads trust each other.
    Raises: StoreTrouble, KeyTrouble, OSError.
    """
    if not makes_own(settings):
        return
    place.tls.mkdir(mode=0o700, exist_ok=True)
    key, authority = _authority(
        place.tls / CA_KEY, place.trusted, datetime.fromtimestamp(now, UTC)
    )
    own_authority = (_key_pem(key) + _certificate_pem(authority)).encode()
    agreed_text = await store.agree(
        AUTHORITY, b64encode(keys.seal(AUTHORITY, own_authority)).decode()
    )
    agreed = keys.open(AUTHORITY, b64decode(agreed_text))
    if agreed != own_authority:
        key_end = agreed.index(_BEGIN)
        write_atomically(place.tls / CA_KEY, agreed[:key_end].decode())
        write_atomically(place.trusted, agreed[key_end:].decode())
        log.info("authority_agreed")


def _sign_head_certificate(
    key: ec.EllipticCurvePrivateKey,
    names: Sequence[str],
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    now: datetime,
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Corral head")])
    issuer_key = authority_key.public_key()
    return (
        _certificate_builder(name, authority.subject, key.public_key(), now, DAYS)
        .add_extension(
            x509.SubjectAlternativeName(
                [_general_name(subject_name) for subject_name in names]
            ),
            False,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )


def _certificate_builder(
    name: x509.Name,
    by: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(by)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _is_certificate_valid(
    own: Tls, authority: x509.Certificate, names: Sequence[str], now: datetime
) -> bool:
    """Return whether the existing certificate is still valid for this authority and
    these names."""
    try:
        certificate = x509.load_pem_x509_certificate(own.certificate.read_bytes())
        key = serialization.load_pem_private_key(own.key.read_bytes(), None)
        certificate.verify_directly_issued_by(authority)
        alternative = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except Exception:  # of whatever kind: another is made
        return False
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not _is_pair(
        key, certificate
    ):
        return False
    begins, valid_until = (
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )
    lasts = begins <= now < valid_until - timedelta(days=RENEW_DAYS)
    return lasts and {_general_name(name) for name in names} <= set(alternative.value)


def _is_pair(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    return key.public_key() == certificate.public_key()


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


async def keep_renewed(
    renew: Callable[[], Tls | None], serving: Callable[[], object]
) -> None:
    """Check the certificate each hour, without end; new connections get a renewed
    certificate.

    `renew`: renews the certificate if it is due and returns its files. `serving`:
    returns the TLS context with which the head serves.
    """
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            tls, context = renew(), serving()
            if tls is not None and isinstance(context, ssl.SSLContext):
                context.load_cert_chain(tls.certificate, tls.key)
        except OSError as error:
            log.warning("certificate_not_renewed", error=str(error))
