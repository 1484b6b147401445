"""Addresses of fallbacks: their parts, and those that are not public."""

import pytest

from corral.wire.fallback_target import FallbackTarget, first_forbidden, is_public


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("0.0.0.0", "100.64.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "fec0::1"),
        # IPv6 addresses that stand for private IPv4 ones
        *("::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:a00:1::"),
        *("64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "not an address", ""),
    ],
)
def test_an_address_inside_a_network_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


def test_one_private_address_of_a_name_is_enough() -> None:
    assert first_forbidden(["8.8.8.8", "10.0.0.1"]) == "10.0.0.1"
    assert first_forbidden(["8.8.8.8", "1.1.1.1"]) is None


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("https://api.example.com/v1", "api.example.com", "/v1/chat/completions"),
        ("https://api.example.com", "api.example.com", "/chat/completions"),
        ("http://h:8080/a/v1/", "h:8080", "/a/v1/chat/completions"),
        ("https://[2001:db8::1]:8443/v1", "[2001:db8::1]:8443", "/v1/chat/completions"),
    ],
)
def test_the_parts_of_an_address(url: str, authority: str, path: str) -> None:
    target = FallbackTarget.of(url)
    assert target.authority == authority
    assert target.path_of("/v1/chat/completions") == path
    assert FallbackTarget.of(target.url) == target


@pytest.mark.parametrize(
    "url",
    [
        *("", "api.example.com/v1", "ftp://h/v1", "file:///etc/passwd", "https://"),
        *("https://u:p@h/v1", "https://h/v1?key=1", "https://h/v1#a", "https://h:0/v1"),
        *("https://h:99999/v1", "https://h/a b", "https://h/\r\nX: y", "https://h h/"),
        *("https://[::1/v1", "https://h/v1%zz\n", "https://" + "a" * 2000),
    ],
)
def test_what_is_no_plain_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="has|is|does|contains"):
        FallbackTarget.of(url)
