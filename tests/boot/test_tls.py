"""The head's own certificate: made once, kept, renewed, and vouched for by its
authority."""

import os
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from corral.boot.join_client import JoinCall, ask
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.tls import DAYS, Tls, names_of, own_tls, tls_of
from corral.domain.errors import SpecInvalid, Unreachable, WrongHead
from corral.wire.tls import trusting
from tests.patience import PATIENCE_SECONDS, own_loopback

DAY = 86400.0
NOW = 1_795_000_000.0


@pytest.fixture
def place(tmp_path: Path) -> ClusterDir:
    made = ClusterDir(tmp_path / "c")
    made.create()
    return made


def shown(tls: Tls) -> bytes:
    return tls.certificate.read_bytes()


def test_a_certificate_is_kept_until_its_last_month_or_another_address(
    place: ClusterDir,
) -> None:
    first = shown(own_tls(place, ["10.0.0.1", "head"], NOW))
    assert shown(own_tls(place, ["head"], NOW + DAY)) == first
    more = shown(own_tls(place, ["10.0.0.1", "10.0.0.2"], NOW + DAY))
    assert more != first
    names = ["10.0.0.1", "10.0.0.2"]
    assert shown(own_tls(place, names, NOW + (DAYS - 31) * DAY)) == more
    authority = place.trusted.read_bytes()
    assert shown(own_tls(place, names, NOW + (DAYS - 28) * DAY)) != more
    # whoever trusts it need not be asked again
    assert place.trusted.read_bytes() == authority


def test_what_is_broken_is_made_anew(place: ClusterDir) -> None:
    tls = own_tls(place, ["h"], NOW)
    first = shown(tls)
    tls.key.write_text("nothing")
    second = shown(own_tls(place, ["h"], NOW))
    assert second != first
    (place.tls / "ca.key").unlink()
    assert shown(own_tls(place, ["h"], NOW)) not in (first, second)


def test_its_files_are_for_their_owner_alone(place: ClusterDir) -> None:
    own_tls(place, ["h"], NOW)
    assert place.tls.stat().st_mode & 0o777 == 0o700
    for file in (*place.tls.iterdir(), place.trusted):
        assert file.stat().st_mode & 0o077 == 0, file


def test_the_authority_vouches_for_servers_alone_and_for_ten_years(
    place: ClusterDir,
) -> None:
    own_tls(place, ["head"], NOW)
    authority = x509.load_pem_x509_certificate(place.trusted.read_bytes())
    usage = authority.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    ends = authority.not_valid_after_utc.timestamp()
    assert NOW + 9 * 365 * 86_400 < ends < NOW + 11 * 365 * 86_400


def test_openssl_takes_the_chain_and_says_the_same_fingerprint(
    place: ClusterDir,
) -> None:
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl here")
    tls = own_tls(place, ["10.0.0.1", "head"], NOW)
    words = [
        "openssl",
        "verify",
        "-attime",
        f"{NOW:.0f}",
        "-x509_strict",
        "-verify_ip",
        "10.0.0.1",
    ]
    words += ["-CAfile", str(tls.trusted), str(tls.certificate)]
    assert subprocess.run(words, capture_output=True).returncode == 0
    words = [
        "openssl",
        "x509",
        "-noout",
        "-fingerprint",
        "-sha256",
        "-in",
        str(tls.certificate),
    ]
    said = subprocess.run(words, capture_output=True, text=True).stdout
    plain = said.strip().rpartition("=")[2].replace(":", "").lower()
    assert tls.fingerprint == f"sha256:{plain}"


def test_loopback_needs_none_and_what_was_given_is_taken(place: ClusterDir) -> None:
    assert tls_of(place, ClusterSettings(), NOW) is None
    assert not place.tls.exists()
    given = ClusterSettings(host="10.0.0.1", tls_certificate="/c.pem", tls_key="/k.pem")
    found = tls_of(place, given, NOW)
    assert found == Tls(
        certificate=Path("/c.pem"), key=Path("/k.pem"), trusted=Path("/c.pem")
    )
    assert not place.tls.exists()
    assert tls_of(place, ClusterSettings(host="10.0.0.1"), NOW) is not None


class Server:
    """Shows a certificate, and keeps what it is sent."""

    def __init__(self, tls: Tls) -> None:
        self.got = b""
        self.listening = socket.create_server((own_loopback(), 0))
        self.url = f"https://{own_loopback()}:{self.listening.getsockname()[1]}"
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(tls.certificate, tls.key)
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        plain, _ = self.listening.accept()
        plain.settimeout(PATIENCE_SECONDS)
        with plain:
            try:
                with self.context.wrap_socket(plain, server_side=True) as talk:
                    while b"\r\n\r\n" not in self.got:
                        piece = talk.recv(4096)
                        if not piece:
                            return
                        self.got += piece
                    talk.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            except OSError:
                return

    def close(self) -> bytes:
        self.thread.join(PATIENCE_SECONDS)
        self.listening.close()
        return self.got


ASKED = JoinCall(method="GET", path="/v1/x", token="the-secret-token-of-a-node")


def now() -> float:
    return os.stat("/proc/self").st_mtime


def test_a_token_is_sent_to_whom_the_fingerprint_names_and_to_nobody_else(
    place: ClusterDir,
) -> None:
    # not for the server's address: pinned
    tls = own_tls(place, names_of("10.0.0.1"), now())
    server = Server(tls)
    assert (
        ask(
            server.url, ASKED, fingerprint=tls.fingerprint.upper().replace("SHA", "sha")
        )
        == {}
    )
    assert b"the-secret-token" in server.close()
    server = Server(tls)
    with pytest.raises(WrongHead):
        ask(server.url, ASKED, fingerprint=f"sha256:{'0' * 64}")
    assert server.close() == b""


def test_a_token_is_sent_to_whom_the_file_vouches_for_and_to_nobody_else(
    place: ClusterDir, tmp_path: Path
) -> None:
    other = ClusterDir(tmp_path / "other")
    other.create()
    stranger = own_tls(other, [own_loopback()], now())
    tls = own_tls(place, [own_loopback()], now())
    server = Server(tls)
    assert ask(server.url, ASKED, trusted=tls.trusted) == {}
    assert b"the-secret-token" in server.close()
    for trusted in (stranger.trusted, None):
        server = Server(tls)
        with pytest.raises(WrongHead):
            ask(server.url, ASKED, trusted=trusted)
        assert server.close() == b""
    # vouched for, but for another address
    elsewhere = own_tls(place, ["10.0.0.9"], now())
    server = Server(elsewhere)
    with pytest.raises(WrongHead):
        ask(server.url, ASKED, trusted=elsewhere.trusted)
    assert server.close() == b""


def test_no_token_goes_in_the_clear_to_another_machine() -> None:
    for url in ("http://10.0.0.1:80", "ftp://h", "h:80", ""):
        with pytest.raises(SpecInvalid):
            ask(url, ASKED)
    with pytest.raises(Unreachable):
        ask(f"http://{own_loopback()}:9", ASKED)


def test_a_certificate_that_vouches_for_itself_can_be_trusted(
    place: ClusterDir,
) -> None:
    tls = own_tls(place, [own_loopback()], now())
    assert trusting(tls.certificate).verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    with pytest.raises(OSError, match="."):
        trusting(tls.key)
