"""A report as a self-contained HTML page, without scripts or external files."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import chain, repeat
from math import isfinite
from typing import Final

from corral.domain.units import share_text
from corral.plan.plot import LIGHT, svg
from corral.plan.report import (
    Cell,
    PlannerReport,
    ReportFigure,
    ReportTable,
    TableColumn,
)
from corral.plan.ticks import number_text

LONG: Final = 60  # letters, from which on a cell may take several lines
DARK: Final = ("#3bc9db", "#ff922b", "#b197fc", "#69db7c", "#f783ac", "#ced4da")


def _colour_variables(
    ink: str, back: str, band: str, grid: str, lines: Sequence[str]
) -> str:
    own_colours = "".join(
        f"--c{colour_index}:{colour};" for colour_index, colour in enumerate(lines)
    )
    return (
        f":root{{--ink:{ink};--back:{back};--band:{band};--grid:{grid};{own_colours}}}"
    )


STYLE: Final = (
    _colour_variables("#212529", "#fff", "#f1f3f5", "#dee2e6", LIGHT)
    + "@media (prefers-color-scheme:dark){"
    + _colour_variables("#e9ecef", "#15181b", "#23272b", "#3a4046", DARK)
    + "}:root{color-scheme:light dark}body{font:15px system-ui;margin:2rem auto;max-width:76rem;"
    "padding:0 1rem;color:var(--ink);background:var(--back)}"
    "h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}"
    ".verdict{font-size:1.1rem}.small{font-size:.85rem}"
    ".wide{overflow-x:auto}svg{width:100%;min-width:34rem;height:auto}svg text{fill:var(--ink)}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.2rem .7rem;text-align:right;vertical-align:top;white-space:nowrap}"
    ".head th{vertical-align:bottom;white-space:normal}"
    ".word,th:first-child{text-align:left}.long{white-space:normal;min-width:24rem}"
    "tr:nth-child(even){background:var(--band)}"
)


def page(report: PlannerReport) -> str:
    """Return the whole report as HTML."""
    title = escape(report.title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{STYLE}</style><h1>{title}</h1>"
        f"{''.join(_render_body(report))}</html>\n"
    )


def _render_body(report: PlannerReport) -> Iterator[str]:
    if report.verdict:
        yield f'<p class="verdict">{escape(report.verdict)}</p>'
    yield from (f"<p><b>{escape(warning)}</b></p>" for warning in report.warnings)
    if report.answers:
        yield _render_answers(report.answers)
    for figure in report.figures:
        yield f"<h2>{escape(figure.title)}</h2>{svg(figure)}"
    for table in report.tables:
        yield _render_table(table)
    yield from _render_list("Assumed", report.assumed)
    yield from _render_list("Sources", report.sources)


def _render_answers(answers: Sequence[ReportFigure]) -> str:
    rows = "".join(
        f"<tr><th>{escape(answer.name)}</th><td>{escape(answer_text(answer))}</td>"
        f'<td class="{_cell_css_class(answer.note)}">{escape(answer.note)}</td></tr>'
        for answer in answers
    )
    return f'<div class="wide"><table>{rows}</table></div>'


def answer_text(one: ReportFigure) -> str:
    """Return a value as text, with its unit and the measured error of such values. A
    percentage gets a range instead, because 90 % with an error of 9 % could be read in
    two ways."""
    unit = f" {one.unit}" if one.unit else ""
    return f"{cell_text(one.value)}{unit}{_band_text(one)}"


def _band_text(one: ReportFigure) -> str:
    value_range = _range_of_figure(one)
    if value_range is not None:
        return f" ({cell_text(value_range[0])} to {cell_text(value_range[1])})"
    return "" if one.band is None else f" \u00b1 {share_text(one.band)}"


def _range_of_figure(one: ReportFigure) -> tuple[float, float] | None:
    if one.low is not None and one.high is not None:
        return one.low, one.high
    if (
        one.band is None
        or not one.unit.startswith("%")
        or not isinstance(one.value, int | float)
    ):
        return None
    return one.value * (1 - one.band), min(100.0, one.value * (1 + one.band))


def _render_table(table: ReportTable) -> str:
    is_text_by_column = [
        _is_words(table, column_index) for column_index in range(len(table.columns))
    ]
    head = "".join(map(_render_header_cell, table.columns, is_text_by_column))
    body = ""
    for row in table.rows:
        is_first = chain([True], repeat(False))
        cells = "".join(map(_render_cell, row, is_text_by_column, is_first))
        body += f"<tr>{cells}</tr>"
    note = f'<p class="small">{escape(table.note)}</p>' if table.note else ""
    table_html = (
        f'<div class="wide"><table><tr class="head">{head}</tr>{body}</table></div>'
    )
    return f"<h2>{escape(table.title)}</h2>{table_html}{note}"


def _render_header_cell(column: TableColumn, is_word: bool) -> str:
    kind = ' class="word"' if is_word else ""
    return f"<th{kind}>{escape(column_text(column))}</th>"


def _is_words(table: ReportTable, at: int) -> bool:
    return any(isinstance(row[at], str) for row in table.rows)


def _render_cell(value: Cell, is_word: bool, is_first: bool) -> str:
    """Return a table cell as HTML. A cell of the first column that contains words is
    the heading of its row."""
    text = escape(cell_text(value))
    if is_word and is_first:
        return f"<th>{text}</th>"
    return (
        f'<td class="{_cell_css_class(text)}">{text}</td>'
        if is_word
        else f"<td>{text}</td>"
    )


def _cell_css_class(text: str) -> str:
    return "word long" if len(text) > LONG else "word"


def column_text(column: TableColumn) -> str:
    """Return the heading of a column: its name, and its unit in brackets."""
    return f"{column.name} ({column.unit})" if column.unit else column.name


def cell_text(value: Cell) -> str:
    """Return a cell as text: numbers with enough digits, yes or no, and "" for an empty
    value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not isfinite(value):
        return "infinite" if value > 0 else ""
    return value if isinstance(value, str) else number_text(value)


def _render_list(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        items = "".join(f"<li>{escape(line)}</li>" for line in lines)
        yield f'<h2>{title}</h2><ul class="small">{items}</ul>'
