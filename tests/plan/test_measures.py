"""Published errors: the page, the bands that reports quote, and what the code gives now
agree.

`fitted.csv` has the errors of all rows, so that a change of the model that makes one
larger is seen; the catalog has those on sources that no constant was fitted to.
"""

import csv
import gzip
from pathlib import Path

import pytest

from corral.catalog.bands import ErrorBand, bands, bands_of
from corral.catalog.facts import by_subject, read_facts
from corral.plan.predictors import predictor
from corral.plan.rows.measures import KINDS, MEASURES, SLICES
from corral.plan.rows.prediction_errors import hold
from corral.plan.validation.held_out import TRAINING
from corral.plan.validation.table_errors import parts

VALIDATION = Path(__file__).parents[2] / "validation"
# a change of the model that makes an error larger than this runs `make validate`
SLACK = 1.02


@pytest.fixture(scope="module")
def fitted() -> dict[str, ErrorBand]:
    lines = (VALIDATION / "fitted.csv").read_text().splitlines()
    return bands_of(by_subject(read_facts(lines)))


def test_every_published_part_has_its_error(fitted: dict[str, ErrorBand]) -> None:
    assert {one.name for one in SLICES} == fitted.keys()


@pytest.mark.parametrize("kind", [kind.name for kind in TRAINING])
def test_every_kind_of_training_has_a_band_of_its_own_and_one_for_any_gpu(
    kind: str,
) -> None:
    assert bands()[kind].sources > 1
    assert bands()[f"{kind}.other"].mean >= bands()[kind].mean


def test_errors_on_unseen_sources_are_those_that_reports_quote(
    fitted: dict[str, ErrorBand],
) -> None:
    for name in (
        "training.step_time.nodes",
        "training.step_time.one_node",
        "serving.itl",
    ):
        assert bands()[name].mean > fitted[name].mean


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_is_larger_than_was_published(
    kind: str, fitted: dict[str, ErrorBand]
) -> None:
    with gzip.open(VALIDATION / "data" / f"{kind}.csv.gz", "rt", newline="") as file:
        outcome = hold(list(csv.DictReader(file)), predictor(kind), MEASURES[kind])
    for name, _, errors, _ in parts(kind, outcome):
        assert errors is not None, name
        assert errors.mean <= fitted[name].mean * SLACK + 1e-4, (
            f"{name}: run `make validate`"
        )
        assert errors.rows >= fitted[name].rows, f"{name} refuses rows that it did not"


def test_the_page_says_what_was_published(fitted: dict[str, ErrorBand]) -> None:
    page = (VALIDATION / "README.md").read_text()
    for part in SLICES:
        band = fitted[part.name]
        line = next(
            line for line in page.splitlines() if line.startswith(f"| {part.title} |")
        )
        assert f"| {band.rows} |" in line
        assert f"| {100 * band.mean:.1f} % |" in line
