"""Measured errors of each kind of prediction, by GPU. They are taken on sources to
which the prediction was not fitted.

`make validate` writes them.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from typing import Final

from corral.catalog.facts import COLUMNS, Facts, table, tables
from corral.domain.units import share_text

TABLE: Final = "bands"
SHARES: Final = ("mean", "median", "p90")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBand:
    """Absolute errors of one kind of prediction, as shares of the measured value.

    `name`: for example training.step_time or serving.ttft. `rows`: number of rows that
    were predicted and measured. `sources`: number of publishers' series from which the
    rows come; no prediction of a row was fitted to its own series. `is_lone`: only one
    source has measured this kind.
    """

    name: str
    mean: float
    median: float
    p90: float
    rows: int
    sources: int = 1
    source: str
    date: date
    is_lone: bool = False

    def __post_init__(self) -> None:
        if min(self.mean, self.median, self.p90) < 0 or self.rows < 1:
            raise ValueError(f"errors are at least 0, of at least one row: {self}")

    @property
    def quoted(self) -> float:
        """Return the error to show with a prediction: the mean, or the 90th percentile
        if only one source has measured this kind, because the errors on the rows of one
        source are too favourable."""
        return self.p90 if self.is_lone else self.mean

    @property
    def measured(self) -> str:
        """Return a phrase such as: 40 measured rows from 3 sources that the model was
        not fitted to."""
        rows, sources = (
            f"{count:,} {noun}{'' if count == 1 else 's'}"
            for count, noun in ((self.rows, "measured row"), (self.sources, "source"))
        )
        return f"{rows} from {sources} that the model was not fitted to"

    def sentence(self, what: str) -> str:
        """Return a sentence that explains the error shown as plus-minus of `what`."""
        if self.is_lone:
            return (
                f"\u00b1 of {what}: nine in ten of {self.measured} are within it; the mean is "
                f"{share_text(self.mean)}: {self.source}"
            )
        return (
            f"\u00b1 of {what}: the mean absolute error of {self.measured}; nine in ten are within "
            f"{share_text(self.p90)}: {self.source}"
        )


@cache
def bands() -> dict[str, ErrorBand]:
    """Return the error bands of the catalog by name; an empty dict if the catalog has
    no measured bands."""
    return bands_of(table(TABLE)) if TABLE in tables() else {}


def band(name: str) -> ErrorBand | None:
    """Return the error band of a kind of prediction. If the kind has no band, return
    that of its parent: training.step_time for training.step_time.gb200. None if no
    parent has one either."""
    known_bands = bands()
    while name and name not in known_bands:
        name = name.rpartition(".")[0]
    return known_bands.get(name)


def unmeasured(name: str) -> str:
    """Return the name of the error band for GPUs that have no measured rows of this
    kind."""
    return f"{name}.other"


def gpu_band(name: str, chip: str) -> ErrorBand | None:
    """Return the error band of this chip. If the chip was not measured, or only by one
    source with a narrower band, return the band of GPUs that were not measured.

    One source is not enough to conclude that a chip is predicted better than its kind.
    """
    known_bands = bands()
    error_band, wider_band = (
        known_bands.get(f"{name}.{chip}"),
        known_bands.get(unmeasured(name)),
    )
    if error_band is None or wider_band is None:
        return error_band or wider_band or band(name)
    return (
        error_band
        if error_band.sources > 1
        else max(error_band, wider_band, key=lambda one: one.quoted)
    )


def quoted_band(name: str) -> float | None:
    """Return the error to show for a kind of prediction, as a share; None if nothing
    was measured."""
    error_band = band(name)
    return None if error_band is None else error_band.quoted


def written(bands: Iterable[ErrorBand]) -> str:
    """Return the text of catalog/data/bands.csv for these bands, sorted by name."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for error_band in sorted(bands, key=lambda one: one.name):
        day = error_band.date.isoformat()
        for quantity in SHARES:
            value = f"{getattr(error_band, quantity):.4f}"
            rows.writerow(
                (error_band.name, quantity, value, "share", error_band.source, day)
            )
        rows.writerow(
            (error_band.name, "rows", error_band.rows, "count", error_band.source, day)
        )
        rows.writerow(
            (
                error_band.name,
                "sources",
                error_band.sources,
                "count",
                error_band.source,
                day,
            )
        )
    return text.getvalue()


def bands_of(facts: Facts) -> dict[str, ErrorBand]:
    """Return the error bands in the facts of a table, by name. Raises: ValueError if a
    band lacks a quantity."""
    bands_by_name: dict[str, ErrorBand] = {}
    for name, own_facts in facts.items():
        if missing := {*SHARES, "rows", "sources"} - own_facts.keys():
            raise ValueError(f"{name} has no {', '.join(sorted(missing))}")
        bands_by_name[name] = ErrorBand(
            name=name,
            mean=own_facts["mean"].number,
            median=own_facts["median"].number,
            p90=own_facts["p90"].number,
            rows=round(own_facts["rows"].number),
            sources=round(own_facts["sources"].number),
            source=own_facts["rows"].source,
            date=own_facts["rows"].date,
        )
    return {
        name: replace(error_band, is_lone=_is_lone(error_band, bands_by_name))
        for name, error_band in bands_by_name.items()
    }


def _is_lone(one: ErrorBand, named: Mapping[str, ErrorBand]) -> bool:
    kind = named.get(one.name.rpartition(".")[0], one)
    return kind.sources == 1
