"""A certificate authority of the tests' own, and a certificate for 127.0.0.1."""

import datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(place: Path) -> Path:
    """Writes ca.pem, key.pem and cert.pem. Returns: the last."""
    authority = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    root = _made("authority of the tests", authority.public_key(), authority, None)
    own = _made("127.0.0.1", key.public_key(), authority, root)
    pem = serialization.Encoding.PEM
    (place / "ca.pem").write_bytes(root.public_bytes(pem))
    (place / "cert.pem").write_bytes(own.public_bytes(pem))
    (place / "key.pem").write_bytes(
        key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    (place / "key.pem").chmod(0o600)
    return place / "cert.pem"


def signing_key(place: Path) -> Path:
    """Writes sa.key, in the form in which an API server reads both its halves."""
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.TraditionalOpenSSL
    file = place / "sa.key"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, form, serialization.NoEncryption()
        )
    )
    file.chmod(0o600)
    return file


def _made(
    name: str,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
) -> x509.Certificate:
    """By itself where there is no issuer."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    by = signer.public_key()
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=issuer is None, crl_sign=issuer is None,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(
            x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(by), critical=False
        )
        .add_extension(usage, critical=True)
    )
    if issuer is not None:
        names = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(signer, hashes.SHA256())
