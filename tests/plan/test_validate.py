"""Errors of predictions, against numbers computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.plan.rows.prediction_errors import (
    MeasuredColumn,
    Pair,
    by,
    errors_of,
    hold,
    rank_correlation,
)
from corral.plan.rows.row import Predicted, Row, RowRefused

TIME = MeasuredColumn(
    name="time",
    predicted="pred_s",
    unit="s",
    measured=lambda row: float(row["s"]) if row["s"] else None,
)


def predict(row: Row) -> Predicted:
    if not row["size"]:
        raise RowRefused("no size", hint="give it")
    return Predicted(values={"pred_s": 2.0 * float(row["size"])})


def pair(predicted: float, measured: float, **cells: str) -> Pair:
    return Pair(row=cells, predicted=predicted, measured=measured)


def test_errors_are_those_computed_by_hand() -> None:
    # errors +10 %, -20 %, +30 %, 0: absolute mean 15 %, median 15 %, p90 30 %, bias 5 %
    found = errors_of([pair(11, 10), pair(8, 10), pair(13, 10), pair(10, 10)])
    assert found is not None
    assert (found.rows, found.rank) == (4, None)
    for told, expected in (
        (found.mean, 0.15),
        (found.median, 0.15),
        (found.p90, 0.30),
        (found.bias, 0.05),
    ):
        assert told == pytest.approx(expected)


def test_a_sweep_is_ranked_within_itself_only() -> None:
    """Two GPUs, each in its right order; over both the order would be wrong."""
    small = [pair(at, at, gpu="a") for at in (1.0, 2.0, 3.0, 4.0)]
    large = [pair(at / 100, 100 * at, gpu="b") for at in (1.0, 2.0, 3.0, 4.0)]
    found = errors_of([*small, *large])
    assert found is not None
    assert found.rank == pytest.approx(1.0)


def test_rows_without_a_prediction_are_counted_by_their_reason() -> None:
    rows = [{"size": "1", "s": "2"}, {"size": "", "s": "3"}, {"size": "2", "s": ""}]
    outcome = hold(rows, predict, [TIME])
    assert (outcome.rows, dict(outcome.refused)) == (3, {"no size": 1})
    assert [one.error for one in outcome.pairs["time"]] == [0.0]


def test_nothing_has_no_errors() -> None:
    assert errors_of([]) is None


def test_groups_come_by_size() -> None:
    pairs = [pair(1, 1, gpu="a"), pair(1, 1, gpu="b"), pair(1, 1, gpu="b")]
    assert [(name, len(some)) for name, some in by(pairs, "gpu").items()] == [
        ("b", 2),
        ("a", 1),
    ]


@pytest.mark.parametrize(
    ("first", "second", "rho"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),  # 1 - 6 * (0 + 1 + 1 + 0) / (4 * 15)
        ([1, 1, 2, 3], [1, 2, 3, 4], 0.9486832980505138),  # ranks 0.5, 0.5, 2, 3
        ([1, 1], [1, 2], None),
    ],
)
def test_rank_correlation_is_spearmans(
    first: list[float], second: list[float], rho: float | None
) -> None:
    found = rank_correlation(first, second)
    assert found is None if rho is None else found == pytest.approx(rho)


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=20, unique=True))
def test_any_rising_function_keeps_the_ranks(values: list[int]) -> None:
    assert rank_correlation(values, [value**0.5 for value in values]) == pytest.approx(
        1.0
    )
