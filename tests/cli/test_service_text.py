"""Text of a service: what its tokens cost."""

from types import SimpleNamespace
from typing import cast

import pytest

from corral.cli.service_text import _cost_text
from corral.wire.service_answers import ServiceView


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (None, ""),
        (0.12345, "0.123 EUR for a million tokens, since yesterday (UTC)"),
    ],
)
def test_the_cost_of_tokens_has_its_currency(cost: float | None, text: str) -> None:
    view = SimpleNamespace(million_token_cost=cost, currency="EUR")
    assert _cost_text(cast(ServiceView, view)) == text
