"""Quotas of users on the command line: options that set them, and the table of usage
and limits."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from corral.cli.printing import clean, show_table, table
from corral.domain.units import HOUR_SECONDS, size_text

if TYPE_CHECKING:
    from corral.wire.quotas import QuotaRow, RateRow

NONE: Final = "none"


def _limit_option(name: str, text: str) -> Parameter:
    metavar = "SIZE" if name.endswith("bytes") else "N"
    about = f"{text}; none: the limit of the cluster applies."
    return Parameter(name=f"--max-{name}", metavar=metavar, help=about)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuotaOptions:
    """Options for the limits of one user. Each field has the name of its quota."""

    jobs: Annotated[
        str | None, _limit_option("jobs", "Limit on unfinished jobs, for example 20000")
    ] = None
    array: Annotated[
        str | None,
        _limit_option("array", "Limit on jobs of one array, for example 10000"),
    ] = None
    spec_bytes: Annotated[
        str | None,
        _limit_option(
            "spec-bytes", "Limit on the size of all stored specs, for example 512MB"
        ),
    ] = None
    upload_bytes: Annotated[
        str | None,
        _limit_option(
            "upload-bytes",
            "Limit on the size of all uploaded workdirs, for example 10GB",
        ),
    ] = None
    log_bytes: Annotated[
        str | None,
        _limit_option(
            "log-bytes", "Limit on the size of all kept logs, for example 20GB"
        ),
    ] = None
    job_log_bytes: Annotated[
        str | None,
        _limit_option(
            "job-log-bytes",
            "Limit on the size of the kept logs of one job, for example 10GB",
        ),
    ] = None
    secrets: Annotated[
        str | None, _limit_option("secrets", "Limit on secrets, for example 200")
    ] = None
    secret_bytes: Annotated[
        str | None,
        _limit_option(
            "secret-bytes", "Limit on the size of all secrets, for example 4MB"
        ),
    ] = None
    tokens: Annotated[
        str | None, _limit_option("tokens", "Limit on valid tokens, for example 200")
    ] = None
    requests_per_minute: Annotated[
        str | None,
        _limit_option(
            "requests-per-minute",
            "Limit on requests a minute to services, for example 600",
        ),
    ] = None
    tokens_per_minute: Annotated[
        str | None,
        _limit_option(
            "tokens-per-minute",
            "Limit on tokens a minute of services, in and out, for example 200000",
        ),
    ] = None
    tokens_per_month: Annotated[
        str | None,
        _limit_option(
            "tokens-per-month",
            "Limit on tokens of services in a calendar month, for example 10000000",
        ),
    ] = None
    concurrent_requests: Annotated[
        str | None,
        _limit_option(
            "concurrent-requests",
            "Limit on concurrent requests to services, for example 32",
        ),
    ] = None

    @property
    def given(self) -> dict[str, str | int | None]:
        """Return the limits that were given as options, by quota. None removes a limit."""
        typed = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: None if value == NONE else value
            for name, value in typed.items()
            if value is not None
        }


def show_quotas(rows: "list[QuotaRow]") -> None:
    """Print a table of the quotas: their use, limits and origin."""
    quota_table = table("QUOTA", "USED", "LIMIT", "SET BY", right=("USED", "LIMIT"))
    for row in rows:
        used_text = "" if row.used is None else _format_amount(row, row.used)
        limit_text = NONE if row.limit is None else _format_amount(row, row.limit)
        quota_table.add_row(clean(row.name), used_text, limit_text, row.set_by)
    show_table(quota_table)


def show_rates(rows: "list[RateRow]") -> None:
    """Print a table of the request rates, used and allowed."""
    rate_table = table(
        "RATE", "USED", "AT ONCE", "ON AVERAGE", right=("USED", "AT ONCE", "ON AVERAGE")
    )
    for row in rows:
        average = f"{row.a_second:g} a second"
        if row.a_second < 1:
            average = f"{row.a_second * HOUR_SECONDS:g} an hour"
        rate_table.add_row(
            clean(row.text), f"{row.used:,.0f}", f"{row.limit:,.0f}", average
        )
    show_table(rate_table)


def _format_amount(row: "QuotaRow", number: int) -> str:
    return size_text(number) if row.unit == "bytes" else f"{number:,}"
