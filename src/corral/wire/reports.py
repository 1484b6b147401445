"""Reports of usage and cost, in the form in which they are sent."""

from datetime import UTC, date, datetime
from typing import Any, Final, Literal

import msgspec

from corral.domain.units import DAY_SECONDS
from corral.insight.reports import OWN_MONEY
from corral.insight.reports import UsageReport as Found
from corral.wire.job_parts import ForecastView

Kind = Literal["usage", "waste", "cost", "goodput"]
By = Literal["job", "user", "queue", "gpu-type"]
MOST_ROWS: Final = 10_000


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


class ReportView(ForecastView):
    """A report of usage or cost. Rows are sorted by allocated GPU-hours, the largest
    first. `rest`: number of rows that are left out. `pretend`: the cluster has
    simulated GPUs, which jobs hold but which are neither measured nor priced."""

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


def date_of(day: int) -> date:
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC).date()


def encoded(
    found: Found, *, first: int, last: int, currency: str, pretend: bool = False
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
    return msgspec.json.encode(body)
