"""When the bearer of a token is told of its end."""

import pytest

from corral.domain.users import is_near_end

HOUR, DAY = 3600.0, 86_400.0


@pytest.mark.parametrize(
    ("life", "left", "is_near"),
    [
        (DAY, DAY - 1.0, False),
        (DAY, 2.5 * HOUR, False),
        (DAY, 2 * HOUR, True),
        (30 * DAY, 3.1 * DAY, False),
        (30 * DAY, 2.9 * DAY, True),
        (900 * DAY, 4 * DAY, False),
        (900 * DAY, 3 * DAY, True),
    ],
)
def test_the_last_tenth_of_a_life_is_told_and_no_more_than_three_days(
    life: float, left: float, is_near: bool
) -> None:
    assert is_near_end(0.0, life, life - left) == is_near
