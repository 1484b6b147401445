"""Address of the fallback of a service, and which addresses it may have."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

HTTPS_PORT: Final = 443
HTTP_PORT: Final = 80
LONGEST_URL: Final = 1000
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~%:@!$&'()*+,;=-]*)*", re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9._:-]{1,253}", re.ASCII)
# IPv6 addresses that a translator leads to IPv4 ones
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
_TRANSLATED_LOCALLY: Final = IPv6Network("64:ff9b:1::/48")


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackTarget:
    """Parts of the address of an API.

    Args:
        host: Name or IP address, without brackets.
        path: Path before that of a request, without a / at its end.
    """

    host: str
    port: int
    path: str
    is_tls: bool

    @classmethod
    def of(cls, url: str) -> "FallbackTarget":
        """Return the parts. Raises: ValueError with the end of a sentence about it."""
        if len(url) > LONGEST_URL:
            raise ValueError(f"is longer than {LONGEST_URL:,} characters")
        if not url.isprintable():
            raise ValueError("is not a valid address")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError("is not a valid address") from None
        if parts.scheme not in ("https", "http"):
            raise ValueError("does not begin with https://")
        if parts.username is not None or parts.password is not None:
            raise ValueError("contains a password; name a secret instead")
        if parts.query or parts.fragment or not _PATH.fullmatch(parts.path):
            raise ValueError("has more than a host and a path")
        if not parts.hostname or not _HOST.fullmatch(parts.hostname):
            raise ValueError("has no valid host")
        is_tls = parts.scheme == "https"
        if port == 0:
            raise ValueError("has no valid port")
        return cls(
            host=parts.hostname,
            port=port or (HTTPS_PORT if is_tls else HTTP_PORT),
            path=parts.path.rstrip("/"),
            is_tls=is_tls,
        )

    @property
    def authority(self) -> str:
        """Return the host, and the port where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = HTTPS_PORT if self.is_tls else HTTP_PORT
        return host if self.port == usual else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http{'s' if self.is_tls else ''}://{self.authority}{self.path}"

    def path_of(self, path: str) -> str:
        """Return the path of a request: /v1 of the gateway's stands for the address."""
        return self.path + path.removeprefix("/v1")


def is_public(address: str) -> bool:
    """Return whether an IP address is on the Internet: not private, loopback,
    link-local, shared, multicast or reserved. Addresses that stand for IPv4 ones count
    as those."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        if ip.is_site_local or ip in _TRANSLATED_LOCALLY:
            return False
        embedded = _embedded(ip)
        if embedded is not None:
            return embedded.is_global and not embedded.is_multicast
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def _embedded(ip: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for; None without one."""
    if ip in _TRANSLATED:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    if ip.teredo is not None:
        return ip.teredo[1]
    return ip.ipv4_mapped or ip.sixtofour


def first_forbidden(addresses: Iterable[str]) -> str | None:
    """Return the first address that a fallback must not have; None if all are public."""
    return next((address for address in addresses if not is_public(address)), None)
