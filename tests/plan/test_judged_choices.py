"""What is chosen of a sweep, against what was the best of it."""

import csv
import gzip
from pathlib import Path

import pytest

from corral.plan.predictors import predictor
from corral.plan.rows.measures import MEASURES
from corral.plan.rows.prediction_errors import Pair, hold
from corral.plan.rows.row import Row
from corral.plan.validation.layout_choices import (
    ASKED,
    asked_for,
    choices,
    choices_table,
)

TABLE = Path(__file__).parents[2] / "validation" / "data" / "training.csv.gz"
SWEEP = {
    "source": "vTrain",
    "model": "GPT",
    "gpu": "A100",
    "n_gpus": "64",
    "nodes": "8",
}


def pair(tensor: int, predicted: float, measured: float, **cells: str) -> Pair:
    return Pair(
        row={**SWEEP, "tp": str(tensor), **cells},
        predicted=predicted,
        measured=measured,
    )


def test_the_quickest_by_prediction_is_chosen_and_held_against_the_best_by_measure() -> (
    None
):
    sweep = [pair(1, 9, 10), pair(2, 8, 11), pair(4, 12, 16), pair(8, 20, 30)]
    (found,) = choices(sweep)
    assert (found.layouts, found.layout) == (4, "tp 2")
    assert (found.chosen, found.best, found.worst) == (11, 10, 30)
    assert found.over_best == pytest.approx(1.1)
    assert choices_table([found]).rows[0][0] == "GPT on 64 A100"


def test_one_layout_measured_twice_is_one_layout() -> None:
    sweep = [pair(1, 9, 10), pair(1, 9, 12), pair(2, 8, 11), pair(4, 12, 16)]
    assert choices(sweep) == ()  # three layouts are no sweep
    (found,) = choices([*sweep, pair(8, 20, 30)])
    assert found.best == 11  # the mean of 10 and 12, as of the other


def test_one_node_and_other_batches_are_other_sweeps() -> None:
    here = [pair(tensor, tensor, tensor, nodes="1") for tensor in (1, 2, 4, 8)]
    apart = [pair(tensor, 1, 1, global_batch=str(tensor)) for tensor in (1, 2, 4, 8)]
    assert choices([*here, *apart]) == ()


def test_the_choice_in_vtrains_sweeps_takes_at_most_what_is_asked() -> None:
    with gzip.open(TABLE, "rt", encoding="utf-8") as file:
        rows: list[Row] = [
            one for one in csv.DictReader(file) if "vTrain" in one["source"]
        ]
    outcome = hold(rows, predictor("training"), MEASURES["training"])
    found = asked_for(choices(outcome.pairs["step time"]))
    assert len(found) == 4
    assert max(one.over_best for one in found) <= ASKED
