"""`corral report usage`, `waste`, `cost` and `goodput`: which users held GPUs, and what
the GPU time was used for."""

import csv
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from corral.boot.clock import SystemClock
from corral.cli.error_output import Usage
from corral.cli.files import check_writable, write
from corral.cli.head_options import MOST_ROWS, Common, Count
from corral.cli.option_types import DateText, JobName, PeriodStart
from corral.cli.printing import print_json
from corral.cli.report_goodput import goodput_tables
from corral.domain.units import seconds_of, share_text

if TYPE_CHECKING:
    from corral.plan.report import Cell, Figure, ReportTable, TableColumn
    from corral.plan.report import PlannerReport as Shown
    from corral.wire.reports import ReportView

By = Literal["job", "user", "queue", "gpu-type"]
_CSV = Parameter(
    name="--csv",
    negative="",
    show_default=False,
    help="Print CSV instead of a table, with up to 10,000 rows.",
)
_HTML = Parameter(
    name="--html",
    negative="",
    help="Also write the report, with plots, to this file as an HTML page.",
)
MOST_BARS = 20
UNKNOWN = "an unknown part"
TOKEN_COLUMNS = frozenset({"requests", "tokens in", "cached", "tokens out"})
PLACES = 3  # of what people read; --json and --csv have all of them
PRETEND = (
    "This cluster has pretend GPUs: their use, energy and list price are not counted."
)
VERDICTS = {
    "usage": "Of {allocated} GPU-hours that were held, {measured} were measured; in "
    "these, a kernel ran for {utilisation} of the time.",
    "waste": "Of {allocated} GPU-hours that were held, {idle} were idle.",
    "goodput": "Of {allocated} GPU-hours that were held, {useful} went into training "
    "steps that were kept: goodput {goodput}.",
}


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportQuery(Common):
    """Options that select the content of a report; every report has them.

    Attributes:
        by: Show one row for each job, user, queue or GPU type (default: queue); with
            --job, the rows are always jobs.
        job: Report only the job with this id or name (default: all jobs).
        since: First day: 7d (seven days ago), or a date in UTC: 2026-11-01 (default: a
            week ago, or the start of --job).
        until: Last day, which is included: 1d (yesterday), or a date in UTC: 2026-11-30
            (default: today).
        limit: Show at most N rows, the largest first; --csv and --json always
            show all rows.
    """

    by: Annotated[By, Parameter(show_default=False)] = "queue"
    job: JobName | None = None
    since: PeriodStart = ""
    until: DateText = ""
    limit: Count = 100
    csv: Annotated[bool, _CSV] = False
    html: Annotated[Path | None, _HTML] = None

    def __post_init__(self) -> None:
        check_writable(self.html)


USUAL = ReportQuery()


def usage(*, wanted: ReportQuery = USUAL) -> None:
    """Report which users held GPUs, and how busy the GPUs were.

    Utilisation is the share of the measured time in which a kernel ran. With --by user
    and --by queue, it has the tokens that users have sent to services and got from them.
    """
    _print_report("usage", wanted)


def waste(*, wanted: ReportQuery = USUAL) -> None:
    """Report GPU-hours without progress: GPUs were idle, jobs were starting or saving,
    or work was lost to failures or stops."""
    _print_report("waste", wanted)


def cost(*, wanted: ReportQuery = USUAL) -> None:
    """Report the cost of GPU-hours and energy.

    The price of a GPU-hour is the node's label `price`, else the rate of the queue's
    budget; both are in the currency of the queues. If neither exists, it is the list
    price of clouds for the GPU type, in USD, in a separate column: the two sums are
    never added.
    """
    _print_report("cost", wanted)


def goodput(*, wanted: ReportQuery = USUAL) -> None:
    """Report which part of the allocated time went into training steps whose results
    were kept, where the rest went, and what would raise it most.

    ETTR is the effective training time ratio, MTTF and MTTR are the mean times to
    failure and from a failure to the next step. With --job, the whole life of the job
    is divided into parts.
    """
    _print_report("goodput", wanted)


def _print_report(kind: str, wanted: ReportQuery) -> None:
    limit = MOST_ROWS if wanted.csv or wanted.json else min(wanted.limit, MOST_ROWS)
    now = SystemClock().wall()
    end_time = _parse_moment(wanted.until, now, "--until") if wanted.until else None
    start_time = _parse_moment(wanted.since, now, "--since") if wanted.since else None
    grouping: By = "job" if wanted.job is not None else wanted.by
    with wanted.client() as client:
        report_view = client.report(
            kind,
            by=grouping,
            since=start_time,
            until=end_time,
            limit=limit,
            job=wanted.job,
        )
    if wanted.html is not None:
        from corral.plan.page import page

        write(wanted.html, page(shown(report_view)))
    if wanted.json:
        print_json(report_view)
    elif wanted.csv:
        _print_csv(report_view)
    else:
        from corral.cli.planner.output import show_report

        show_report(shown(report_view, figures=False))


def _parse_moment(text: str, now: float, option: str) -> float:
    """Parse a time, and return it on the wall clock. For example: 7d (seven days ago)
    or 2026-11-01."""
    try:
        return max(0.0, now - seconds_of(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = f"write, for example: {option} 7d, or {option} 2026-11-01"
        raise Usage(
            f"{option} {text} is neither a duration nor a date", hint=hint
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _print_csv(found: "ReportView") -> None:
    heads = [
        f"{column.name} ({column.unit})" if column.unit else column.name
        for column in found.columns
    ]
    csv_writer = csv.writer(sys.stdout, lineterminator="\n")
    names = [found.by, "name"] if found.by == "job" else [found.by]
    csv_writer.writerow([*names, *heads])
    for row in found.rows:
        own_cells = [row.name, row.more] if found.by == "job" else [row.name]
        csv_writer.writerow(
            [
                *own_cells,
                *("" if value is None else f"{value:.10g}" for value in row.values),
            ]
        )


def shown(found: "ReportView", *, figures: bool = True) -> "Shown":
    """Return the report in the form that the terminal and the HTML page show.
    `figures`: include figures."""
    from corral.plan.report import PlannerReport as Shown

    full_report, found = found, _without_unused(found)
    tables: tuple[ReportTable, ...] = ()
    if found.rows:
        tables = (
            tuple(goodput_tables(found, _table_of))
            if found.kind == "goodput"
            else (_table_of(found, ""),)
        )
    return Shown(
        title=f"{found.kind} by {found.by}, {found.first} to {found.last} (UTC)",
        verdict=_report_verdict(full_report),
        answers=(),
        tables=tables,
        figures=_usage_figures(found) if figures and found.rows else (),
    )


def _table_of(found: "ReportView", title: str) -> "ReportTable":
    """Return the table of a report's rows, with their total."""
    from corral.plan.report import ReportTable, columns

    names = ["job", "name"] if found.by == "job" else [found.by.replace("-", " ")]
    rows = [
        ((row.name, row.more) if found.by == "job" else (row.name or "unknown",))
        + _value_cells(found, row.values)
        for row in found.rows
    ]
    total = ("total", "") if found.by == "job" else ("total",)
    if len(found.rows) > 1 or found.rest:
        rows.append(total + _value_cells(found, found.total))
    remainder_text = (
        f"{found.rest} more rows are" if found.rest > 1 else "1 more row is"
    )
    left_out = (
        f"{remainder_text} left out; to show more, add --limit N" if found.rest else ""
    )
    return ReportTable(
        title=title,
        columns=(*columns(*names), *_table_columns(found)),
        rows=tuple(rows),
        note=left_out,
    )


def _report_verdict(found: "ReportView") -> str:
    if not found.rows:
        return "No GPU was allocated in this period."
    texts = {
        column.name: _format_value(value, column.unit)
        for column, value in zip(found.columns, found.total, strict=True)
    }
    if not found.total[_column_index(found, "allocated")]:
        verdict = "No GPU was allocated in this period."
    elif found.kind == "cost":
        verdict = _cost_verdict(found, texts)
    elif found.kind == "usage" and texts["utilisation"] == UNKNOWN:
        verdict = (
            f"Of {texts['allocated']} GPU-hours that were held, none were measured."
        )
    else:
        verdict = VERDICTS[found.kind].format(**texts)
    return f"{verdict} {PRETEND}" if found.pretend else verdict


def _column_index(found: "ReportView", name: str) -> int:
    return [column.name for column in found.columns].index(name)


def _cost_verdict(found: "ReportView", texts: Mapping[str, str]) -> str:
    """Return for example: 12 GPU-hours: 8.67 EUR at the cluster's prices (1.2 wasted);
    10.8 USD at list prices (3.1 wasted); 2 GPU-hours have no price."""
    total = {
        report_column.name: value or 0.0
        for report_column, value in zip(found.columns, found.total, strict=True)
    }
    currency = next(column.unit for column in found.columns if column.name == "money")
    cost_texts = []
    if total["money"] or not (total["list price"] or total["without a price"]):
        cost_texts.append(
            f"{texts['money']} {currency} at the cluster's prices "
            f"({_format_losses(texts, '')})"
        )
    if total["list price"]:
        listed = f"{texts['list price']} USD at list prices of clouds"
        cost_texts.append(f"{listed} ({_format_losses(texts, ' of it')})")
    if total["without a price"]:
        cost_texts.append(f"{texts['without a price']} GPU-hours have no price")
    return f"{texts['allocated']} GPU-hours: {'; '.join(cost_texts)}."


def _format_losses(texts: Mapping[str, str], which: str) -> str:
    """Return for example: 1.2 wasted, 3.1 for time in which no kernel ran. `which`: end
    of a column's name."""
    wasted, idle = texts[f"wasted{which}"], texts[f"not used{which}"]
    if idle == UNKNOWN:
        return f"{wasted} wasted; whether kernels ran was not measured"
    return f"{wasted} wasted, {idle} for time in which no kernel ran"


def _format_value(value: float | None, unit: str) -> str:
    from corral.plan.ticks import number_text

    if value is None:
        return UNKNOWN
    if not unit and float(value).is_integer():  # a count
        return f"{value:,.0f}"
    return share_text(value, 1) if unit == "share" else number_text(value)


def _without_unused(found: "ReportView") -> "ReportView":
    """Return the report without the columns of tokens and of price kinds that no row
    uses."""
    from corral.cli.report_goodput import with_columns

    if found.kind not in ("usage", "cost"):
        return found
    total = {
        report_column.name: value
        for report_column, value in zip(found.columns, found.total, strict=True)
    }
    unused = set() if total["requests"] else TOKEN_COLUMNS
    if found.kind == "cost" and not total["list price"]:
        unused = unused | {"list price", "wasted of it", "not used of it"}
    elif found.kind == "cost" and not total["money"]:
        unused = unused | {"money", "wasted", "not used"}
    return with_columns(
        found, [column.name for column in found.columns if column.name not in unused]
    )


def _table_columns(found: "ReportView") -> "tuple[TableColumn, ...]":
    from corral.plan.report import columns

    return columns(
        *(
            (column.name, "%" if column.unit == "share" else column.unit)
            for column in found.columns
        )
    )


def _value_cells(found: "ReportView", values: list[float | None]) -> "tuple[Cell, ...]":
    return tuple(
        None
        if value is None
        else round(value * (100.0 if column.unit == "share" else 1.0), PLACES)
        for column, value in zip(found.columns, values, strict=True)
    )


def _usage_figures(found: "ReportView") -> "tuple[Figure, ...]":
    """Return the figures of a usage report: GPU-hours by day, and the largest holders
    of GPUs."""
    from corral.plan.report import Figure, FigureSeries, TableColumn

    hours = [
        column_index
        for column_index, report_column in enumerate(found.columns)
        if report_column.unit == "GPU-hours"
    ]
    marks = tuple(
        (float(day_index), str(day.day)[5:]) for day_index, day in enumerate(found.days)
    )
    lines = tuple(
        FigureSeries(
            name=found.columns[hours_column].name,
            points=tuple(
                (float(x), day.values[hours_column] or 0.0)
                for x, day in enumerate(found.days)
            ),
        )
        for hours_column in hours
    )
    bars = tuple(
        FigureSeries(
            name=row.more or row.name or "unknown",
            points=((0.0, row.values[0] or 0.0),),
        )
        for row in found.rows[:MOST_BARS]
    )
    value = TableColumn(name="held", unit="GPU-hours")
    by_day = Figure(
        title="By day", x=TableColumn(name="day"), y=value, series=lines, x_marks=marks
    )
    holder_figure = Figure(
        title="Most GPU-hours held",
        x=TableColumn(name=""),
        y=value,
        series=bars,
        kind="bars",
    )
    return (by_day, holder_figure) if len(found.days) > 1 else (holder_figure,)
