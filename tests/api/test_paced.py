"""What one node may send, by its budgets alone."""

import asyncio
from unittest.mock import patch

from corral.api.node_rates import LONGEST_WAIT_SECONDS, NodeRates


def waits(inventories: int, apart_seconds: float) -> list[float]:
    """How long each of so many inventories of one node is held."""
    held: list[float] = []

    async def sleep(seconds: float) -> None:
        held[-1] = seconds

    async def scenario() -> None:
        pace = NodeRates()
        for number in range(inventories):
            held.append(0.0)
            await pace.wait_for_inventory(number * apart_seconds)

    with patch("corral.api.node_rates.asyncio.sleep", sleep):
        asyncio.run(scenario())
    return held


def test_a_node_whose_inventory_changes_all_the_time_waits_for_each_and_is_never_silenced() -> (
    None
):
    held = waits(100, apart_seconds=0.0)
    assert not any(held[:60])
    assert all(held[60:])
    assert max(held) <= LONGEST_WAIT_SECONDS


def test_a_node_that_dials_anew_each_three_seconds_never_waits() -> None:
    assert not any(waits(200, apart_seconds=3.0))
