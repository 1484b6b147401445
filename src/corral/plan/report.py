"""Planner report as data, which a terminal, a page or a program can show."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from math import isfinite
from typing import Any, Final, Literal

DAY_SECONDS: Final = 86_400.0
Cell = str | float | int | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """Column of a table. `unit` is shown in the column's head, not in its cells; "" if
    the column has no unit."""

    name: str
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSeries:
    name: str
    points: tuple[tuple[float, float], ...]
    low: tuple[float, ...] = ()  # of a band around the points, as many as these
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a report. `kind`: lines through points, points alone, or bars. A
    series is one bar: from 0 to the y of its point, or between the y of its two points.
    `x_marks`: positions on the x axis, each with a label; without them, round numbers
    are marked."""

    title: str
    x: TableColumn
    y: TableColumn
    series: tuple[FigureSeries, ...]
    kind: Literal["lines", "points", "bars"] = "lines"
    x_marks: tuple[tuple[float, str], ...] = ()
    x_is_log: bool = False
    y_is_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFigure:
    """One number of the answer, which is shown with its uncertainty. `band`: the
    measured relative error in either direction (validation/README.md); None for a
    counted or looked-up number. `low`, `high`: bounds in the number's unit, used where
    the error differs between the two directions."""

    name: str
    value: Cell
    unit: str = ""
    band: float | None = None
    note: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerReport:
    """Report of a planner.

    `verdict` is the answer in one or two sentences. `assumed` lists the assumptions for
    values not given, each with the option that sets it. `sources` are those of the
    input numbers.
    """

    title: str
    verdict: str
    answers: tuple[ReportFigure, ...]
    tables: tuple[ReportTable, ...] = ()
    figures: tuple[Figure, ...] = ()
    assumed: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)  # whole, for programs

    def as_data(self) -> dict[str, Any]:
        """Return the whole report as JSON-compatible data for programs. `data` holds
        the computed values, the other fields what is shown. An infinite number becomes
        None."""
        return {
            field.name: _to_json_value(getattr(self, field.name))
            for field in fields(self)
        }

    def answer(self, name: str) -> ReportFigure:
        """Return the figure with this name. Raises: KeyError."""
        for answer in self.answers:
            if answer.name == name:
                return answer
        raise KeyError(name)


def columns(*names: str | tuple[str, str]) -> tuple[TableColumn, ...]:
    """Return columns, each given by its name or by (name, unit)."""
    return tuple(
        TableColumn(name=name)
        if isinstance(name, str)
        else TableColumn(name=name[0], unit=name[1])
        for name in names
    )


def lasting(seconds: float) -> tuple[float, str]:
    """Return a time span as (value, unit) in a suitable unit: 0.4 h becomes 24 minutes."""
    for unit, size in (("days", DAY_SECONDS), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return seconds / size, unit
    return seconds, "seconds"


def _to_json_value(value: Any) -> Any:
    if is_dataclass(value):
        return {
            field.name: _to_json_value(getattr(value, field.name))
            for field in fields(value)
        }
    if isinstance(value, Mapping):
        return {
            str(name): _to_json_value(item_value) for name, item_value in value.items()
        }
    if isinstance(value, tuple | list | set | frozenset):
        return [_to_json_value(item_value) for item_value in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)
