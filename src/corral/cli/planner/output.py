"""Output of a planner report on a terminal, as JSON, or as an HTML page."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from cyclopts import Parameter

from corral.cli.files import check_apart, check_writable, write
from corral.cli.printing import (
    fits,
    note,
    print_json,
    say,
    show_pairs,
    show_table,
    table,
)

if TYPE_CHECKING:
    from rich.table import Table as Rows

    from corral.plan.report import PlannerReport, ReportFigure, ReportTable

_JSON = Parameter(
    name="--json", negative="", show_default=False, help="Answer in JSON."
)
_HTML = Parameter(
    name="--html", negative="", help="Write a page with plots to this file."
)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Out:
    """Options for the form of the output. A file that cannot be written is refused
    before the work begins."""

    json: Annotated[bool, _JSON] = False
    html: Annotated[Path | None, _HTML] = None

    def __post_init__(self) -> None:
        check_writable(self.html)

    def apart_from(self, *read: Path | None) -> Self:
        """Check that the HTML page does not overwrite one of the input files, and
        return this object. Raises: Conflict if it would."""
        check_apart(self.html, read)
        return self

    def show(self, report: "PlannerReport") -> None:
        """Print the report (verdict, numbers with error bands, tables), and write its
        HTML page if requested."""
        from corral.plan.page import page

        if self.html is not None:
            write(self.html, page(report))
        if self.json:
            print_json(report.as_data())
            return
        show_report(report)


def show_report(report: "PlannerReport") -> None:
    """Print the report to stdout, and warnings to stderr."""
    from rich.text import Text

    say(Text(report.title, style="bold"))
    if report.verdict:
        say(report.verdict)
    for warning in report.warnings:
        note(warning)
    if report.answers:
        say()
    show_pairs((answer.name, _format_answer(answer)) for answer in report.answers)
    for report_table in report.tables:
        say()
        _show_table(report_table)
    for head, lines in (("assumed", report.assumed), ("sources", report.sources)):
        if lines:
            say()
            say(Text(head, style="bold"))
            for line in lines:
                say(f"  {line}")


def _format_answer(one: "ReportFigure") -> str:
    from corral.plan.page import answer_text

    return answer_text(one) + (f"  {one.note}" if one.note else "")


def _show_table(shown: "ReportTable") -> None:
    from rich.text import Text

    from corral.plan.page import column_text

    if shown.title:
        say(Text(shown.title, style="bold"))
    heads = [column_text(column) for column in shown.columns]
    rich_table = _build_table(shown, heads)
    if not fits(rich_table):  # units then stand below the names
        rich_table = _build_table(
            shown,
            [
                f"{table_column.name}\n{table_column.unit}"
                for table_column in shown.columns
            ],
        )
    show_table(rich_table)
    if shown.note:
        say(shown.note)


def _build_table(shown: "ReportTable", heads: list[str]) -> "Rows":
    from corral.plan.page import cell_text

    numbers = [
        head
        for column_index, head in enumerate(heads)
        if not any(isinstance(row[column_index], str) for row in shown.rows)
    ]
    rich_table = table(*heads, right=numbers)
    for row in shown.rows:
        rich_table.add_row(*(cell_text(cell) for cell in row))
    return rich_table
