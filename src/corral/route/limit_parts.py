"""Parts of one limit that several gateways grant, by what each has lately needed."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import Final

# of the limit that gateways which need nothing keep together, for their next requests
RESERVED_SHARE: Final = 0.01
HEADROOM: Final = 1.04  # times what was needed lately, where more was not needed


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitNeed:
    """What one gateway has lately needed of a limit. `is_short`: it has refused
    requests because of it, so that it needs more than it has."""

    used: float = 0.0
    is_short: bool = False


def deal_limit(limit: float, needs: Mapping[str, LimitNeed]) -> dict[str, float]:
    """Return the part of the limit for each gateway. The parts add up to the limit.

    A gateway that is not short keeps what it has used and some headroom; those that are
    short share the rest equally. If none is short, all share the rest.
    """
    if not needs:
        return {}
    least = limit * RESERVED_SHARE / len(needs)
    parts = {
        gateway: least if need.is_short else max(least, need.used * HEADROOM)
        for gateway, need in needs.items()
    }
    total = sum(parts.values())
    if total > limit:
        return {gateway: part * limit / total for gateway, part in parts.items()}
    short = [gateway for gateway, need in needs.items() if need.is_short] or [*needs]
    for gateway in short:
        parts[gateway] += (limit - total) / len(short)
    return parts


def whole_parts(parts: Mapping[str, float]) -> dict[str, int]:
    """Return whole numbers near the parts, with the same sum."""
    whole = {gateway: floor(part) for gateway, part in parts.items()}
    missing = round(sum(parts.values())) - sum(whole.values())
    by_remainder = sorted(
        parts, key=lambda gateway: (whole[gateway] - parts[gateway], gateway)
    )
    for gateway in by_remainder[:missing]:
        whole[gateway] += 1
    return whole


def granted_now(
    parts: Mapping[str, int], occupied: Mapping[str, int], limit: int
) -> dict[str, int]:
    """Return the parts of a number of concurrent requests that can be granted at once:
    what other gateways may still hold is not granted again.

    Args:
        parts: Parts as they are to be.
        occupied: Requests that each gateway may have under way: those that it has, or an
            earlier part that it may not have given up yet.
    """
    granted: dict[str, int] = {}
    for gateway, part in parts.items():
        others = sum(
            max(occupied.get(other, 0), granted.get(other, 0))
            for other in parts
            if other != gateway
        )
        granted[gateway] = max(0, min(part, limit - others))
    return granted
