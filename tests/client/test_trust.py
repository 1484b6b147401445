"""Whom a client believes to be the head: the machine's own list is read for TLS
alone."""

import asyncio
import ssl
from pathlib import Path

import pytest

from corral import AsyncClient, Client
from corral.boot.clock import SystemClock
from corral.boot.settings import ClusterDir
from corral.boot.tls import own_tls
from corral.client.head_target import Where
from corral.domain.errors import SpecInvalid, Unreachable
from tests.api.heads import TOKENS, Head, serving
from tests.patience import own_loopback

TOKEN = TOKENS["admin"]


def trusted_at(url: str) -> ssl.SSLContext:
    where = Where(url=url, token=TOKEN)
    return where.trust(where.target())


@pytest.fixture
def vouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ClusterDir(tmp_path / "c")
    place.create()
    own_tls(place, ["h"], SystemClock().wall())
    monkeypatch.setenv("CORRAL_CA", str(place.trusted))


@pytest.mark.usefixtures("vouched")
def test_over_tls_what_corral_ca_names_is_trusted_and_without_it_nobody() -> None:
    one = trusted_at("https://h:1")
    assert one.cert_store_stats()["x509_ca"] >= 1
    other = trusted_at("http://127.0.0.1:1")
    assert other.cert_store_stats()["x509"] == 0
    for context in (one, other):
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname


def test_what_is_no_certificate_is_refused_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    monkeypatch.setenv("CORRAL_CA", str(tmp_path / "ca.pem"))
    with pytest.raises(SpecInvalid, match="no certificate can be read from"):
        trusted_at("https://h:1")


@pytest.mark.parametrize("first", ["http", "https"])
def test_heads_with_and_without_tls_are_called_by_one_client(
    first: str, tmp_path: Path
) -> None:
    """None answers over TLS here: the other is called as if it had been alone."""
    with serving(tmp_path) as head:
        urls = [head.url, f"https://{own_loopback()}:9"]
        both = ",".join(urls if first == "http" else reversed(urls))
        with Client(url=both, token=TOKEN) as client:
            assert client.status().head.pid == 4711
        assert asyncio.run(_pid(both)) == 4711
        _never_over_tls(head)


async def _pid(url: str) -> int:
    async with AsyncClient(url=url, token=TOKEN) as client:
        return (await client.status()).head.pid


def _never_over_tls(head: Head) -> None:
    """A head without TLS is nobody over it."""
    url = head.url.replace("http:", "https:")
    with Client(url=url, token=TOKEN) as client, pytest.raises(Unreachable):
        client.status()
