"""Limit on automatic cordons (the breaker): health cordons at most a share of the nodes
within some minutes."""

from collections.abc import Iterable

from corral.domain.node import Node
from corral.health.health_rules import HealthRules


def recent_health_cordons(nodes: Iterable[Node], now: float, rules: HealthRules) -> int:
    """Return how many nodes were cordoned automatically within the breaker's time,
    whatever happened to them later."""
    moments = (
        node.health_cordoned_at for node in nodes if node.health_cordoned_at is not None
    )
    return sum(now - cordoned_at < rules.breaker_seconds for cordoned_at in moments)
