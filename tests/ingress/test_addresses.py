"""Which addresses count as one, and whose word about a client's address is believed."""

import pytest

from corral.ingress.addresses import UNKNOWN, TrustedProxies, network_of


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", UNKNOWN),
        ("a" * 300, UNKNOWN),
    ],
)
def test_an_address_counts_for_its_network(address: str, network: str) -> None:
    assert network_of(address) == network


def headers(*values: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-forwarded-for", value.encode()) for value in values]


@pytest.mark.parametrize(
    ("peer", "said", "client"),
    [
        ("127.0.0.1", ("203.0.113.9",), "127.0.0.1"),  # no proxy: forged
        ("10.0.0.5", ("203.0.113.9",), "203.0.113.9"),
        ("::ffff:10.0.0.5", ("203.0.113.9",), "203.0.113.9"),
        # what the client put before
        ("10.0.0.5", ("198.51.100.1, 203.0.113.9",), "203.0.113.9"),
        ("10.0.0.5", ("198.51.100.1", "203.0.113.9, 10.0.0.6"), "203.0.113.9"),
        ("10.0.0.5", ("203.0.113.9:4711",), "203.0.113.9"),
        ("10.0.0.5", ("[2001:db8::1]:4711",), "2001:db8::1"),
        ("10.0.0.5", ("unknown",), "10.0.0.5"),
        ("10.0.0.5", (), "10.0.0.5"),
        ("10.0.0.5", ("10.0.0.6",), "10.0.0.6"),
    ],
)
def test_only_a_trusted_proxy_names_the_client(
    peer: str, said: tuple[str, ...], client: str
) -> None:
    assert TrustedProxies(["10.0.0.0/24"]).client_of(peer, headers(*said)) == client


def test_without_trusted_proxies_no_header_counts() -> None:
    proxies = TrustedProxies()
    assert not proxies
    assert proxies.client_of("127.0.0.1", headers("203.0.113.9")) == "127.0.0.1"


@pytest.mark.parametrize(
    ("peer", "said", "scheme", "is_seen_as"),
    [
        ("10.0.0.5", [b"https"], "http", "https"),
        ("10.0.0.5", [b"https"], "ws", "wss"),
        ("10.0.0.5", [b"gopher"], "http", "http"),
        ("10.0.0.5", [b"https", b"http"], "http", "http"),
        ("192.0.2.1", [b"https"], "http", "http"),
    ],
)
def test_only_a_trusted_proxy_names_the_scheme(
    peer: str, said: list[bytes], scheme: str, is_seen_as: str
) -> None:
    proxies = TrustedProxies(["10.0.0.5"])
    found = proxies.scheme_of(
        peer, [(b"x-forwarded-proto", value) for value in said], scheme
    )
    assert found == is_seen_as
