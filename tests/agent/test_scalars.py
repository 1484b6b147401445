"""Scalars that ranks log: by name, bounded, with the spikes between two looks of the
head."""

from math import inf, nan
from typing import Any

import pytest

from corral.agent.shim.scalars import Scalars, scalars_within
from corral.agent.shim.state import ShimState, progress_within
from corral.domain.bounds import MOST_SCALARS


def bounds(scalars: Scalars) -> dict[str, list[Any]]:
    return {name: rest for name, *rest in scalars.records}


def test_a_spike_stays_within_the_bounds_until_the_head_has_looked() -> None:
    scalars = Scalars()
    for at in range(0, 25):
        scalars.take({"grad_norm": 100.0 if at == 3 else 1.0}, 1000.0 + at)
        low, high = bounds(scalars)["grad_norm"][1:]
        assert low == 1.0
        if 3 <= at < 13:  # the head looks each 10 s: at least once meanwhile
            assert high == 100.0
    assert bounds(scalars)["grad_norm"] == [1.0, 1.0, 1.0]


def test_a_value_that_is_not_finite_is_a_gap() -> None:
    scalars = Scalars()
    scalars.take({"a": 1, "b": inf, "c": None}, 1.0)
    scalars.take({"a": nan}, 2.0)
    assert bounds(scalars) == {
        "a": [None, 1, 1],
        "b": [None, None, None],
        "c": [None] * 3,
    }


@pytest.mark.parametrize(
    "values",
    [["a"], {"": 1}, {"a,b": 1}, {"a" * 65: 1}, {"a": "1"}, {"a": True}, {1: 1}, None],
)
def test_what_is_no_scalar_is_left_out(values: object) -> None:
    scalars = Scalars()
    scalars.take(values, 1.0)
    assert scalars.records == []


def test_names_are_bounded_in_number() -> None:
    scalars = Scalars()
    scalars.take({f"s{number}": number for number in range(100)}, 1.0)
    assert len(scalars.records) == MOST_SCALARS
    assert len(scalars_within([["s", 1.0, 1.0, 1.0]] * 100)) == MOST_SCALARS


def test_progress_of_ranks_that_log_nothing_keeps_the_scalars() -> None:
    state = ShimState()
    state.take_progress(
        {"rank": 0, "step": 1, "loss": 2.0, "scalars": {"lr": 0.1}}, 1.0, [0, 1]
    )
    state.take_progress({"rank": 1, "step": 1}, 2.0, [0, 1])
    assert state.progress is not None
    assert [one[0] for one in state.progress["scalars"]] == ["loss", "lr"]
    assert progress_within(state.progress) == state.progress
    older = {name: value for name, value in state.progress.items() if name != "scalars"}
    assert (progress_within(older) or {})["scalars"] == []
