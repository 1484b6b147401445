"""Reports of usage and cost, in the form in which they are sent."""

from datetime import UTC, date, datetime
from typing import Any, Final, Literal, Self

import msgspec

from corral.domain.units import DAY_SECONDS, HOUR_SECONDS
from corral.insight.goodput_advice import GoodputAdvice, goodput_advice
from corral.insight.reports import OWN_MONEY
from corral.insight.reports import UsageReport as Found
from corral.insight.training_time import JobTime
from corral.wire.job_parts import ForecastView

Kind = Literal["usage", "waste", "cost", "goodput"]
By = Literal["job", "user", "queue", "gpu-type"]
MOST_ROWS: Final = 10_000
MOST_INTERVALS: Final = 500


class ReportColumn(ForecastView):
    """A column of a report. A value with the unit "share" is from 0 to 1. Money at the
    cluster's own prices is in its currency, list prices of clouds are in USD; the two
    are never added."""

    name: str
    unit: str


class ReportRow(ForecastView):
    """A row of a report, with a value for each column (None: unknown). `more`: the name
    of a job."""

    name: str
    more: str = ""
    values: list[float | None]


class ReportDay(ForecastView):
    """The sum of all rows on one day (UTC)."""

    day: date
    values: list[float | None]


class GoodputAdviceView(ForecastView):
    """A change that would raise the goodput, and its worth in the period of the report.
    `share` is a share of the held time. `money` is in the cluster's currency, and
    `list_money` in USD; null without prices."""

    text: str
    change: str
    gpu_hours: float
    share: float
    money: float | None
    list_money: float | None

    @classmethod
    def of(cls, advice: GoodputAdvice, currency: str) -> Self:
        return cls(
            text=advice.text(currency),
            change=advice.change,
            gpu_hours=advice.gpu_seconds / HOUR_SECONDS,
            share=advice.share,
            money=advice.money,
            list_money=advice.list_money,
        )


class TimePartView(ForecastView):
    """Sum of the seconds of a job with one use, and their share of its life."""

    part: str
    seconds: float
    share: float


class TimeIntervalView(ForecastView):
    """Interval of a job's life (wall clock) with one use. `attempt` is 0 outside of
    attempts."""

    part: str
    since: float
    until: float
    attempt: int


class JobTimeView(ForecastView):
    """Life of a job, divided into parts: `parts` add up to it. `intervals` follow each
    other without a gap; of a job with very many, only the newest are sent.

    `ettr`: the useful share of the time since the first placement, without the time for
    which the job was suspended. `mttf_seconds` and `mttr_seconds`: mean times to failure
    and to repair; null if there was none. `reports_steps` false: its program reports no
    steps, so all time counts as useful in which it ran and that was not lost.
    """

    parts: list[TimePartView]
    intervals: list[TimeIntervalView]
    ettr: float | None
    failures: int
    mttf_seconds: float | None
    mttr_seconds: float | None
    reports_steps: bool

    @classmethod
    def of(cls, time: JobTime) -> Self:
        seconds = time.seconds
        whole = sum(seconds.values())
        return cls(
            parts=[
                TimePartView(
                    part=part, seconds=value, share=value / whole if whole else 0.0
                )
                for part, value in seconds.items()
            ],
            intervals=[
                TimeIntervalView(
                    part=interval.part,
                    since=interval.since,
                    until=interval.until,
                    attempt=interval.attempt,
                )
                for interval in time.intervals[-MOST_INTERVALS:]
            ],
            ettr=time.ettr,
            failures=time.failures,
            mttf_seconds=time.mttf_seconds,
            mttr_seconds=time.mttr_seconds,
            reports_steps=time.reports_steps,
        )


class ReportView(ForecastView):
    """A report of usage or cost. Rows are sorted by allocated GPU-hours, the largest
    first. `rest`: number of rows that are left out. `pretend`: the cluster has
    simulated GPUs, which jobs hold but which are neither measured nor priced.
    `advice`: what would raise the goodput most, the best first. `time`: the whole life
    of the job, if the report of the goodput is of one job that makes steps or runs by
    itself; it is not cut to the period."""

    kind: Kind
    by: By
    first: date
    last: date
    columns: list[ReportColumn]
    rows: list[ReportRow]
    rest: int = 0
    total: list[float | None]
    days: list[ReportDay]
    pretend: bool = False
    advice: list[GoodputAdviceView] = []
    time: JobTimeView | None = None


def date_of(day: int) -> date:
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC).date()


def encoded(
    found: Found,
    *,
    first: int,
    last: int,
    currency: str,
    pretend: bool = False,
    time: JobTime | None = None,
) -> bytes:
    """Return the JSON of a report. It is encoded directly, because 10,000 rows would
    otherwise become objects that only JSON needs."""
    columns = found.columns
    body: dict[str, Any] = {
        "kind": found.kind,
        "by": found.by,
        "first": date_of(first),
        "last": date_of(last),
        "columns": [
            {
                "name": column.name,
                "unit": currency if column.unit == OWN_MONEY else column.unit,
            }
            for column in columns
        ],
        "rows": [
            {
                "name": row.name,
                "more": row.more,
                "values": [c.of(row.amounts) for c in columns],
            }
            for row in found.rows
        ],
        "rest": found.rest,
        "total": [column.of(found.total) for column in columns],
        "days": [
            {"day": date_of(day), "values": [column.of(amounts) for column in columns]}
            for day, amounts in found.days
        ],
        "pretend": pretend,
    }
    if found.kind == "goodput":
        advice = goodput_advice(found.total)
        body["advice"] = [
            GoodputAdviceView.of(change, currency).model_dump() for change in advice
        ]
        body["time"] = None if time is None else JobTimeView.of(time).model_dump()
    return msgspec.json.encode(body)
