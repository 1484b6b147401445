"""Words that all reports share."""

import pytest

from corral.plan.report import counted, lasting


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 nodes"),
        (1, "1 node"),
        (2, "2 nodes"),
        (2_048, "2,048 nodes"),
        (2.5, "2.5 nodes"),
    ],
)
def test_one_of_a_thing_is_told_in_the_singular(count: float, text: str) -> None:
    assert counted(count, "node") == text


def test_a_plural_may_be_its_own_word() -> None:
    assert counted(2, "switch", "switches") == "2 switches"
    assert counted(1, "switch", "switches") == "1 switch"


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
