"""Checks of the settings that limit what clients may take from the head."""

from collections.abc import Iterable
from ipaddress import ip_network
from typing import Final

from corral.domain.errors import SpecInvalid

MOST_RATE: Final = 1_000_000.0


def check_limits(user_requests: float, plan_seconds: float, proxies: Iterable[str]) -> None:
    """Raises: SpecInvalid on rates that cannot be, and on proxies without a valid address."""
    for network in proxies:
        check_network(network)
    if not (1.0 <= user_requests <= MOST_RATE and 1.0 <= plan_seconds <= MOST_RATE):
        raise SpecInvalid(
            f"one user cannot have {user_requests:g} requests a second and {plan_seconds:g} s of "
            "planning an hour",
            hint=f"each may be 1 to {MOST_RATE:,.0f}: corral up --user-requests 200 "
            "--plan-seconds 900",
        )


def check_network(text: str) -> None:
    """Raises: SpecInvalid on text that is not an address or a network."""
    try:
        ip_network(text)
    except ValueError as error:
        raise SpecInvalid(
            f"--trusted-proxy {text[:60]} is not an address or a network: {error}",
            hint="for example: corral up --trusted-proxy 10.0.0.5 --trusted-proxy 10.1.0.0/16",
        ) from None
