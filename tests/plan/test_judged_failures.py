"""What clusters tell of their failures, held against the formulas."""

import csv
import gzip
from pathlib import Path

import pytest

from corral.plan.validation.failure_formulas import (
    FormulaCheck,
    failures_table,
    held_failures,
)

DATA = Path(__file__).parents[2] / "validation" / "data" / "failures.csv.gz"


@pytest.fixture(scope="module")
def held() -> tuple[FormulaCheck, ...]:
    with gzip.open(DATA, "rt", encoding="utf-8", newline="") as file:
        return held_failures(list(csv.DictReader(file)))


def test_llama_3_lies_within_the_bands(held: tuple[FormulaCheck, ...]) -> None:
    llama = [one for one in held if "Llama 3" in one.what]
    assert len(llama) == 2  # between failures, and goodput
    assert all(one.within for one in llama)


def test_only_the_extremes_and_the_jobs_of_rsc_1_lie_without(
    held: tuple[FormulaCheck, ...],
) -> None:
    without = [one.what for one in held if not one.within]
    assert [
        next(name for name in ("GLM", "OPT", "1,024") if name in what)
        for what in without
    ] == [
        "GLM",
        "OPT",
        "1,024",
    ]


def test_a_least_is_held_by_what_reaches_it() -> None:
    told = FormulaCheck(
        what="x",
        unit="%",
        measured=90.0,
        predicted=92.0,
        low=91.0,
        high=93.0,
        at_least=True,
    )
    assert told.within
    assert not FormulaCheck(
        what="x", unit="%", measured=90.0, predicted=92.0, low=91.0, high=93.0
    ).within
    row = failures_table([told]).rows[0]
    assert row == ("x", "more than 90 %", "92 %", "91 to 93", "yes")


def test_a_row_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match="RSC-1"):
        held_failures([])
