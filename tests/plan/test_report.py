"""Words that all reports share."""

import pytest

from corral.plan.report import lasting


@pytest.mark.parametrize(
    ("seconds", "value", "unit"),
    [
        (0.5, 0.5, "seconds"),
        (119.0, 119.0, "seconds"),
        (120.0, 2.0, "minutes"),
        (7_200.0, 2.0, "hours"),
        (172_799.0, 48.0, "hours"),
        (172_800.0, 2.0, "days"),
    ],
)
def test_a_span_is_told_in_a_unit_of_which_it_has_two(
    seconds: float, value: float, unit: str
) -> None:
    found, told = lasting(seconds)
    assert found == pytest.approx(value, rel=1e-3)
    assert told == unit
