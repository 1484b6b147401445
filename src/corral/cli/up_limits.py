"""Options of `corral up` that limit what one user may take from the head."""

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from corral.cli.option_types import Days, Rate, Seconds, Size
from corral.cli.user_quotas import QuotaOptions


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class UserLimitOptions(QuotaOptions):
    """Limits of one user."""

    user_requests: Annotated[
        Rate | None,
        Parameter(
            name="--user-requests",
            help="Requests a second that one user may send on average (200).",
        ),
    ] = None
    plan_seconds: Annotated[
        Seconds | None,
        Parameter(
            name="--plan-seconds",
            help="Seconds of planning that one user may have an hour (900).",
        ),
    ] = None

    keep_work_days: Annotated[
        Days | None,
        Parameter(
            name="--keep-work-days",
            help="Days for which nodes keep what an attempt wrote into its work folder (7).",
        ),
    ] = None
    keep_work_size: Annotated[
        Size | None,
        Parameter(
            name="--keep-work-size",
            help="Size of all kept work folders of one user on a node; the oldest go first (50GB).",
        ),
    ] = None

    @property
    def limits(self) -> dict[str, Any]:
        """Return the options as fields of `ClusterOptions`."""
        return {
            "user_requests": self.user_requests,
            "plan_seconds": self.plan_seconds,
            "keep_work_days": self.keep_work_days,
            "keep_work_size": self.keep_work_size,
        }
