"""Rules of the expected length of an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.expected_output import ExpectedOutput


@given(
    answers=st.lists(
        st.tuples(st.none() | st.integers(-1, 2**63), st.integers(0, 10**6)),
        max_size=100,
    ),
    limit=st.none() | st.integers(-1, 2**63),
)
def test_an_answer_is_expected_within_what_was_seen_and_its_limit(
    answers: list[tuple[int | None, int]], limit: int | None
) -> None:
    expected = ExpectedOutput(256.0)
    for max_tokens, tokens in answers:
        expected.observe(max_tokens, tokens)
    seen = [256, *(tokens for _, tokens in answers)]
    assert 0 <= expected.tokens(limit) <= max(seen) + 1e-6
    if limit is None:
        assert expected.tokens(limit) >= min(seen) - 1e-6
    else:
        assert expected.tokens(limit) <= max(limit, 0)


def test_each_bucket_of_max_tokens_has_its_own_mean() -> None:
    expected = ExpectedOutput()
    for _ in range(300):
        expected.observe(4096, 800)
        expected.observe(64, 20)
        expected.observe(None, 300)
    assert expected.tokens(4096) == pytest.approx(800, rel=0.1)
    assert expected.tokens(64) == pytest.approx(20, rel=0.6)
    assert expected.tokens(None) == pytest.approx(300, rel=0.1)


def test_an_empty_bucket_falls_back_to_all_answers() -> None:
    expected = ExpectedOutput()
    for _ in range(300):
        expected.observe(None, 900)
    assert expected.tokens(2000) == pytest.approx(900, rel=0.05)


def test_a_change_of_traffic_is_followed() -> None:
    expected = ExpectedOutput()
    for tokens in (1000, 50):
        for _ in range(200):
            expected.observe(None, tokens)
    assert expected.tokens(None) < 100
