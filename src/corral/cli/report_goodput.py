"""Tables of the goodput report: where held time went, how reliable jobs were, what
would raise the goodput, and the life of one job by parts."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from corral.domain.units import duration_text, share_text

if TYPE_CHECKING:
    from corral.plan.report import Cell, ReportTable
    from corral.wire.reports import JobTimeView, ReportView

MAIN: Final = ("allocated", "useful", "goodput", "ETTR")
RELIABILITY: Final = (
    "failed attempts",
    "MTTF",
    "MTTR",
    "queued",
    "queued again",
)


def goodput_tables(
    report: "ReportView", table_of: "Callable[[ReportView, str], ReportTable]"
) -> "Iterator[ReportTable]":
    """Yield the tables of a goodput report. Columns in which nothing was lost are left
    out.

    Args:
        table_of: Returns the table of a report, under a title.
    """
    from corral.plan.report import ReportTable, columns

    names = [column.name for column in report.columns]
    lost = [
        name
        for name, value in zip(names, report.total, strict=True)
        if name not in (*MAIN, *RELIABILITY) and value
    ]
    yield table_of(with_columns(report, MAIN), "")
    if lost:
        yield table_of(with_columns(report, lost), "Held, but not useful")
    if any(report.total[names.index(name)] for name in RELIABILITY):
        yield table_of(with_columns(report, RELIABILITY), "Failures and waits")
    if report.time is not None:
        yield _job_table(report.time)
    if report.advice:
        yield ReportTable(
            title="What would raise it most",
            columns=columns("change and its worth"),
            rows=tuple((change.text,) for change in report.advice),
        )


def with_columns(report: "ReportView", names: Sequence[str]) -> "ReportView":
    """Return the report with only these columns, in this order."""
    places = {column.name: place for place, column in enumerate(report.columns)}
    chosen = [places[name] for name in names if name in places]

    def some(values: list[float | None]) -> list[float | None]:
        return [values[place] for place in chosen]

    return report.model_copy(
        update={
            "columns": [report.columns[place] for place in chosen],
            "rows": [
                row.model_copy(update={"values": some(row.values)})
                for row in report.rows
            ],
            "total": some(report.total),
            "days": [
                day.model_copy(update={"values": some(day.values)})
                for day in report.days
            ],
        }
    )


def _job_table(time: "JobTimeView") -> "ReportTable":
    """Return the table of a job's parts, the largest first."""
    from corral.plan.report import ReportTable, columns

    rows: list[tuple[Cell, ...]] = [
        (part.part, duration_text(part.seconds), round(100 * part.share, 2))
        for part in sorted(time.parts, key=lambda part: -part.seconds)
        if part.seconds > 0
    ]
    return ReportTable(
        title="Life of the job",
        columns=columns("part", "time", ("share", "%")),
        rows=tuple(rows),
        note=_job_note(time),
    )


def _job_note(time: "JobTimeView") -> str:
    texts = []
    if time.ettr is not None:
        texts.append(f"effective training time ratio {share_text(time.ettr, 1)}")
    if time.mttf_seconds is not None:
        texts.append(f"mean time to failure {duration_text(time.mttf_seconds)}")
    if time.mttr_seconds is not None:
        texts.append(f"mean time to repair {duration_text(time.mttr_seconds)}")
    if not time.reports_steps:
        texts.append(
            "the program reports no steps, so all time counts as useful in which it ran "
            "and that was not lost"
        )
    return "; ".join(texts)
