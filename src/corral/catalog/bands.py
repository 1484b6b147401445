"""How far off each kind of prediction has been measured to be. `make validate` writes it."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Final

from corral.catalog.facts import COLUMNS, Facts, table, tables
from corral.domain.units import share_text

TABLE: Final = "bands"
SHARES: Final = ("mean", "median", "p90")


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Absolute errors of one kind of prediction, as shares of what was measured.

    `name`: training.step_time, serving.ttft, ... `rows`: that were predicted and measured.
    """

    name: str
    mean: float
    median: float
    p90: float
    rows: int
    source: str
    date: date

    def __post_init__(self) -> None:
        if min(self.mean, self.median, self.p90) < 0 or self.rows < 1:
            raise ValueError(f"errors are at least 0, of at least one row: {self}")

    def told(self, what: str) -> str:
        """What a plus-minus beside `what` means."""
        return (
            f"\u00b1 of {what}: the mean absolute error over {self.rows:,} measured rows, of which "
            f"nine in ten are within {share_text(self.p90)}: {self.source}"
        )


@cache
def bands() -> dict[str, Band]:
    """Those of the catalog, by name; none as long as nothing has been measured."""
    return bands_of(table(TABLE)) if TABLE in tables() else {}


def band(name: str) -> Band | None:
    """The band of a kind of prediction, or of the kind that it belongs to: of training.step_time
    where training.step_time.gb200 has none. None where neither has been measured."""
    known = bands()
    while name and name not in known:
        name = name.rpartition(".")[0]
    return known.get(name)


def mean_band(name: str) -> float | None:
    """The mean error of a kind of prediction, as a share; None where nobody has measured it."""
    known = band(name)
    return None if known is None else known.mean


def written(bands: Iterable[Band]) -> str:
    """The text of catalog/data/bands.csv, in the order of their names."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for one in sorted(bands, key=lambda one: one.name):
        day = one.date.isoformat()
        for quantity in SHARES:
            value = f"{getattr(one, quantity):.4f}"
            rows.writerow((one.name, quantity, value, "share", one.source, day))
        rows.writerow((one.name, "rows", one.rows, "count", one.source, day))
    return text.getvalue()


def bands_of(facts: Facts) -> dict[str, Band]:
    """Raises: ValueError where one is not whole."""
    named: dict[str, Band] = {}
    for name, own in facts.items():
        if missing := {*SHARES, "rows"} - own.keys():
            raise ValueError(f"{name} has no {', '.join(sorted(missing))}")
        named[name] = Band(
            name=name,
            mean=own["mean"].number,
            median=own["median"].number,
            p90=own["p90"].number,
            rows=round(own["rows"].number),
            source=own["rows"].source,
            date=own["rows"].date,
        )
    return named
