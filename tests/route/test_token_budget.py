"""Part of a budget of tokens that one process grants."""

from hypothesis import given
from hypothesis import strategies as st

from corral.route.token_budget import TokenBudget


def test_tokens_are_reserved_until_the_request_ends() -> None:
    budget = TokenBudget()
    budget.grant(100.0, None)
    budget.reserve(80)
    assert budget.has_room(20)
    assert not budget.has_room(30)
    budget.finish(used=50, reserved=80)
    assert budget.left == 50
    assert budget.finished == 50


def test_what_the_head_has_not_seen_is_subtracted_from_a_new_part() -> None:
    budget = TokenBudget(finished=1000)
    budget.grant(100.0, None)
    assert budget.left == 100  # the first part of a process that goes on
    budget.reserve(30)
    budget.finish(used=30, reserved=30)
    budget.grant(90.0, 1010)
    assert budget.left == 70  # 20 of the 30 are not in the head's sum yet


def test_an_older_count_of_another_life_takes_nothing_away() -> None:
    budget = TokenBudget()
    budget.grant(10.0, 5000)
    assert budget.left == 10


steps = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.booleans()))


@given(steps)
def test_a_budget_is_never_exceeded_by_reserved_tokens(
    steps: list[tuple[int, int, bool]],
) -> None:
    """The head sees some of the ended requests and grants the rest again and again."""
    limit, budget, seen = 500, TokenBudget(), 0
    budget.grant(float(limit), None)
    for reserved, used, is_seen in steps:
        used = min(used, reserved)
        if budget.has_room(reserved):
            budget.reserve(reserved)
            budget.finish(used, reserved)
        if is_seen:
            seen = budget.finished
        budget.grant(float(limit - seen), seen)
        assert budget.finished <= limit
