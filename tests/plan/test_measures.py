"""Published errors: the page, the bands that reports quote, and what the code gives now agree."""

import csv
import gzip
from pathlib import Path

import pytest

from corral.catalog.bands import bands
from corral.plan.judged import parts
from corral.plan.measures import KINDS, MEASURES, SLICES
from corral.plan.predictors import predictor
from corral.plan.validate import hold

VALIDATION = Path(__file__).parents[2] / "validation"
SLACK = 1.02  # a change of the model that makes an error larger than this runs `make validate`


def test_every_published_part_has_its_band() -> None:
    assert {one.name for one in SLICES} == bands().keys()


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_is_larger_than_its_band_says(kind: str) -> None:
    with gzip.open(VALIDATION / "data" / f"{kind}.csv.gz", "rt", newline="") as file:
        outcome = hold(list(csv.DictReader(file)), predictor(kind), MEASURES[kind])
    for name, _, errors, _ in parts(kind, outcome):
        assert errors is not None, name
        assert errors.mean <= bands()[name].mean * SLACK + 1e-4, f"{name}: run `make validate`"
        assert errors.rows >= bands()[name].rows, f"{name} refuses rows that it did not"


def test_the_page_says_what_the_bands_say() -> None:
    page = (VALIDATION / "README.md").read_text()
    for part in SLICES:
        band = bands()[part.name]
        line = next(line for line in page.splitlines() if line.startswith(f"| {part.title} |"))
        assert f"| {band.rows} |" in line
        assert f"| {100 * band.mean:.1f} % |" in line
