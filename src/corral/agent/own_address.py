"""The address and network interface at which other machines reach this machine."""

import fcntl
import re
import socket
import struct
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = "127.0.0.1"
_FIB: Final = Path("/proc/self/net/fib_trie")
_IPV6: Final = Path("/proc/self/net/if_inet6")
_LOCAL: Final = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")
_GET_ADDRESS: Final = 0x8915  # SIOCGIFADDR of linux/sockios.h


def address_towards(url: str) -> str:
    """Return the address of this machine from which it connects to the URL's host.
    Nothing is sent.

    Raises: OSError when there is no route to the host.
    """
    parsed_url = urlsplit(url)
    addresses = socket.getaddrinfo(
        parsed_url.hostname, parsed_url.port or 443, type=socket.SOCK_DGRAM
    )
    family, kind, protocol, _, target = addresses[0]
    with socket.socket(family, kind, protocol) as trial:
        trial.connect(target)
        return str(trial.getsockname()[0])


def own_addresses() -> list[str]:
    """Return the machine's addresses, except loopback and link-local addresses."""
    addresses: list[str] = []
    with suppress(OSError):
        addresses += _LOCAL.findall(_FIB.read_text())
    with suppress(OSError):
        hex_addresses = (line.split()[0] for line in _IPV6.read_text().splitlines())
        addresses += [
            str(ip_address(bytes.fromhex(hex_address))) for hex_address in hex_addresses
        ]
    routable = (
        address
        for address in map(ip_address, addresses)
        if not address.is_loopback and not address.is_link_local
    )
    return list(dict.fromkeys(map(str, routable)))


def interface_of(address: str) -> str:
    """Return the name of the network interface that has this address; "" if none has
    it."""
    for _, name in socket.if_nameindex():
        if address in _addresses_on(name):
            return name
    return ""


def _addresses_on(name: str) -> list[str]:
    addresses: list[str] = []
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking, suppress(OSError):
        answer = fcntl.ioctl(asking, _GET_ADDRESS, request)
        addresses.append(socket.inet_ntoa(answer[20:24]))
    with suppress(OSError):
        rows = [line.split() for line in _IPV6.read_text().splitlines()]
        addresses += [
            str(ip_address(bytes.fromhex(row[0]))) for row in rows if row[-1] == name
        ]
    return addresses
