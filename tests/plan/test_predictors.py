"""Whatever stands in the rows of a table, each is predicted or refused."""

import csv
import gzip
from contextlib import suppress
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.errors import NotFound
from corral.plan.predictors import PREDICTED, PREDICTORS, predictor
from corral.plan.rows.row import Row, RowRefused

DATA = Path(__file__).parents[2] / "validation" / "data"
CELLS = [
    "",
    "0",
    "-1",
    "7",
    "0.5",
    "many",
    "1e9",
    "1e15",
    "1e999",
    "-inf",
    "nan",
    "H100",
]


def some(kind: str) -> tuple[Row, ...]:
    with gzip.open(DATA / f"{kind}.csv.gz", "rt", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))[::40]


ROWS = {kind: some(kind) for kind in PREDICTORS}


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_whatever_a_cell_says_a_row_is_predicted_or_refused(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(sorted(PREDICTORS)))
    row = data.draw(st.sampled_from(ROWS[kind]))
    column = data.draw(st.sampled_from(sorted(row)))
    cell = data.draw(st.sampled_from(CELLS))
    with suppress(RowRefused):  # and nothing else is raised
        found = predictor(kind)({**row, column: cell}).values
        assert set(found) <= set(PREDICTED[kind])
        assert all(isfinite(value) and value > 0 for value in found.values())


@pytest.mark.parametrize("kind", sorted(PREDICTORS))
def test_a_row_of_nothing_is_refused(kind: str) -> None:
    with pytest.raises(RowRefused):
        predictor(kind)({})


def test_what_nobody_has_is_refused_by_its_column() -> None:
    with pytest.raises(RowRefused, match="n_gpus cannot be 1e15"):
        predictor("training")(dict(ROWS["training"][0]) | {"n_gpus": "1e15"})


def test_an_unknown_kind_gets_the_nearest() -> None:
    with pytest.raises(NotFound) as refused:
        predictor("trainings")
    assert "training" in refused.value.hint
