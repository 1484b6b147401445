"""Addresses of peers: networks that count as one address, and proxies that report the
address of their clients."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Network = IPv4Network | IPv6Network
Headers = Iterable[tuple[bytes, bytes]]

# one subscriber has at least this much, and so any number of addresses
IPV6_PREFIX: Final = 64
UNKNOWN: Final = "unknown"
_SCHEMES: Final = (b"http", b"https")


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Return the network whose addresses share their limits: a single IPv4 address, or
    an IPv6 /64.

    Text that is not an address counts as a separate network.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return UNKNOWN
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(IPv6Network((parsed, IPV6_PREFIX), strict=False))
    return str(parsed)


class TrustedProxies:
    """Proxies whose X-Forwarded-For and X-Forwarded-Proto headers are trusted."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """Take the addresses or networks of trusted proxies.

        Raises: ValueError on text that is not an address or a network.
        """
        self._networks: list[Network] = [
            ip_network(text, strict=False) for text in networks
        ]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        if not self._networks:
            return False
        try:
            parsed = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
        return any((mapped or parsed) in network for network in self._networks)

    def client_of(self, peer: str, headers: Headers) -> str:
        """Return the address of the client: the last address that is not a trusted
        proxy's.

        Each proxy appends the address from which it was called, so earlier addresses
        may be forged.
        """
        if peer not in self:
            return peer
        client = peer
        for hop in reversed(_forwarded_for(headers)):
            try:
                client = str(ip_address(_without_port(hop)))
            except ValueError:
                return client
            if client not in self:
                return client
        return client

    def scheme_of(self, peer: str, headers: Headers, scheme: str) -> str:
        """Return the scheme that the client used, as the proxy reports it."""
        if peer not in self:
            return scheme
        values = [value for name, value in headers if name == b"x-forwarded-proto"]
        if len(values) != 1 or values[0] not in _SCHEMES:
            return scheme
        is_tls = values[0] == b"https"
        return (
            {True: "wss", False: "ws"}[is_tls]
            if scheme in ("ws", "wss")
            else values[0].decode()
        )


def _forwarded_for(headers: Headers) -> list[str]:
    values = [value for name, value in headers if name == b"x-forwarded-for"]
    hops = b",".join(values).decode("latin-1").split(",")
    return [hop.strip() for hop in hops]


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
