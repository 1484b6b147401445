"""Output of curves as text, as JSON and as CSV."""

import csv
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

from corral.cli.curves.rows import CurveRow, Picture
from corral.cli.curves.sparkline import sparkline, value_text
from corral.cli.printing import clean, clock_text, note, say, show_table, table
from corral.domain.units import duration_text

if TYPE_CHECKING:
    from rich.table import Table

OF_GPUS: Final = frozenset({"busy of those", "power"})  # curves of the cluster
MOST_GPUS: Final = 16  # that are shown one by one without being asked for
WIDEST: Final = 100  # characters of a curve
LEAST: Final = 10
_OVER_TIME: Final = "OVER TIME"
BESIDE: Final = 44  # columns next to the names: four numbers and the gaps


def show(picture: Picture, *, width: int, every_gpu: bool) -> None:
    """Print the known curves as lines of text. Each GPU gets its own line if there are
    few GPUs, or if `every_gpu` is set."""
    span = duration_text(picture.grid.until - picture.grid.since)
    mark = " (its GPUs are pretend)" if picture.pretend else ""
    say(clean(f"{picture.what}{mark}, {span} up to {clock_text(picture.grid.until)}"))
    if picture.is_empty:
        note(_empty_text(picture))
        return
    say()
    _show_rows("CURVE", picture.rows, picture, width)
    alone = picture.gpus if every_gpu or len(picture.gpus) <= MOST_GPUS else ()
    if alone and (len(alone) > 1 or every_gpu):
        say()
        _show_rows("BUSY", alone, picture, width)
    elif picture.gpus and not alone:
        note(f"each of its {len(picture.gpus)} GPUs: --gpus")
    for chart_note in picture.notes:
        note(chart_note)


def _empty_text(picture: Picture) -> str:
    """Return why there are no curves."""
    if not picture.has_gpus:
        return "it has no GPUs and has logged no steps, so there are no series"
    if picture.is_over:
        return "no point was stored: there is one every 10 s"
    return "no point is stored yet: there is one every 10 s"


def _show_rows(
    title: str, rows: tuple[CurveRow, ...], picture: Picture, width: int
) -> None:
    names = [f"{row.name} ({row.unit})" if _is_told(row) else row.name for row in rows]
    if picture.pretend:
        names = [
            f"{name} (pretend)" if _is_of_gpus(row) else name
            for name, row in zip(names, rows, strict=True)
        ]
    longest = max(map(len, (*names, title)), default=0)
    wide = max(LEAST, min(WIDEST, width - longest - BESIDE))
    now = "LAST" if picture.is_over else "NOW"
    curve_table: Table = table(
        title, now, "MIN", "MEAN", "MAX", _OVER_TIME, right=(now, "MIN", "MEAN", "MAX")
    )
    for name, row in zip(names, rows, strict=True):
        lower_bound, upper_bound = (0.0, 1.0) if row.unit == "share" else (None, None)
        numbers = (
            value_text(number, row.unit)
            for number in (row.last, row.low, row.mean, row.high)
        )
        curve_table.add_row(
            name,
            *numbers,
            sparkline(row.values, wide, low=lower_bound, high=upper_bound),
        )
    # neither it nor a curve is folded
    curve_table.columns[-1].min_width = max(len(_OVER_TIME), wide)
    show_table(curve_table)


def _is_of_gpus(row: CurveRow) -> bool:
    """Return whether the row shows readings of GPUs."""
    return "GPU " in row.name or row.name in OF_GPUS


def _is_told(row: CurveRow) -> bool:
    return row.unit not in ("", "share", "bytes/s", "jobs")


def as_json(picture: Picture) -> dict[str, Any]:
    """Return the curves as data for JSON: one list of times, and for each curve its
    values at these times. Shares are from 0 to 1, and null is an unknown value."""
    return {
        "of": picture.what,
        "since": picture.grid.since,
        "until": picture.grid.until,
        "pretend": picture.pretend,
        "times": picture.grid.times,
        "curves": [_curve_fields(row) for row in picture.rows],
        "gpus": [_curve_fields(row) for row in picture.gpus],
    }


def _curve_fields(row: CurveRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "unit": row.unit,
        "min": row.low,
        "mean": row.mean,
        "max": row.high,
        "last": row.last,
        "values": list(row.values),
    }


def print_csv(picture: Picture, out: TextIO | None = None) -> None:
    """Print CSV with one line for each time (seconds since 1970) and one column for
    each curve; an unknown value is empty."""
    writer = csv.writer(out or sys.stdout, lineterminator="\n")
    rows = (*picture.rows, *picture.gpus)
    heads = (f"{row.name} ({row.unit})" if row.unit else row.name for row in rows)
    writer.writerow(["at", *heads])
    for time_seconds, *values in zip(
        picture.grid.times, *(row.values for row in rows), strict=True
    ):
        writer.writerow(
            [
                f"{time_seconds:.3f}",
                *("" if value is None else f"{value:.10g}" for value in values),
            ]
        )
