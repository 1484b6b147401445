"""Checks of the settings that limit how much of the head's capacity clients may use, and
of the settings of the gateway."""

from collections.abc import Iterable
from ipaddress import ip_network
from typing import Final

from corral.domain.errors import SpecInvalid
from corral.domain.kept_work import WorkLimits
from corral.domain.units import bytes_of

MOST_RATE: Final = 1_000_000.0
MOST_WORK_DAYS: Final = 3_650.0
MOST_PORT: Final = 65_535
MOST_WORKERS: Final = 256


def check_limits(
    user_requests: float, plan_seconds: float, proxies: Iterable[str]
) -> None:
    """Check the request rate, the planning time and the addresses of proxies.

    Raises: SpecInvalid if a rate is out of its bounds, or a proxy is not a valid
    address or network.
    """
    for network in proxies:
        check_network(network)
    if not 1.0 <= user_requests <= MOST_RATE:
        raise SpecInvalid(
            f"--user-requests {user_requests:g} is not valid: use 1 to "
            f"{MOST_RATE:,.0f} requests a second",
            hint="for example: corral up --user-requests 200",
        )
    if not 1.0 <= plan_seconds <= MOST_RATE:
        raise SpecInvalid(
            f"--plan-seconds {plan_seconds:g} is not valid: use 1 to "
            f"{MOST_RATE:,.0f} seconds an hour",
            hint="for example: corral up --plan-seconds 900",
        )


def check_network(text: str) -> None:
    """Check an address or network of `--trusted-proxy`. Raises: SpecInvalid if the text
    is neither."""
    try:
        ip_network(text)
    except ValueError as error:
        raise SpecInvalid(
            f"--trusted-proxy {text[:60]} is not an address or a network: {error}",
            hint="for example: corral up --trusted-proxy 10.0.0.5 --trusted-proxy 10.1.0.0/16",
        ) from None


def check_gateway(port: int, workers: int) -> None:
    """Check the port and the processes of the gateway. Raises: SpecInvalid."""
    if not 0 <= port <= MOST_PORT:
        raise SpecInvalid(
            f"--gateway-port {port} is not a valid port: use 1 to {MOST_PORT:,}, or 0 "
            "for a free port",
            hint="for example: corral up --gateway-port 8480",
        )
    if not 1 <= workers <= MOST_WORKERS:
        raise SpecInvalid(
            f"--gateway-workers {workers} is not valid: use 1 to {MOST_WORKERS} "
            "processes",
            hint="for example: corral up --gateway-workers 4",
        )


def model_cache_bytes(size: str | None) -> int | None:
    """Return the size of the models that a node keeps; None for the default. Raises:
    SpecInvalid."""
    if size is None:
        return None
    try:
        return bytes_of(size)
    except ValueError as error:
        raise SpecInvalid(
            f"--model-cache {size[:60]}: {error}",
            hint="for example: corral up --model-cache 500GB",
        ) from None


def work_limits(days: float, size: str) -> WorkLimits:
    """Return the limits of kept work folders, by days and by size. Raises: SpecInvalid."""
    try:
        user_bytes = bytes_of(size)
    except ValueError as error:
        raise SpecInvalid(
            f"--keep-work-size {size[:60]}: {error}",
            hint="for example: corral up --keep-work-size 50GB; 0GB keeps none",
        ) from None
    if not 0 <= days <= MOST_WORK_DAYS:
        raise SpecInvalid(
            f"--keep-work-days {days:g} is not valid: use 0 to {MOST_WORK_DAYS:,.0f} "
            "days",
            hint="for example: corral up --keep-work-days 7",
        )
    return WorkLimits(days=days, user_bytes=user_bytes)
