"""Address at which a replica listens, by the report of its agent. The gateways send
requests and the replica's key to it."""

from ipaddress import IPv4Address, IPv6Address, ip_address


def accepted_address(reported: str, node_address: str) -> str:
    """Return the reported address; "" if it is the node's own, or is not acceptable.

    An agent must not direct requests to a service of the gateway's own machine, or to
    one that only this machine reaches. Names are not acceptable, because they may stand
    for any address.
    """
    address = _parsed(reported)
    if reported == node_address or address is None:
        return ""
    if address.is_unspecified or address.is_multicast or address.is_link_local:
        return ""
    if address.is_loopback and not _is_loopback(node_address):
        return ""
    return reported


def _is_loopback(node_address: str) -> bool:
    address = _parsed(node_address)
    return node_address == "localhost" or (address is not None and address.is_loopback)


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
