"""The command plan serve: which GPUs serve a model within its latency targets, how many
are needed, and what a token costs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from corral.cli.planner.metavars import with_metavars
from corral.cli.planner.models import with_config
from corral.cli.planner.output import Out
from corral.cli.planner.prices import read_prices_of
from corral.plan.serve.plan import ServeRequest, plan_serve
from corral.plan.serve.report import report


@with_metavars
def serve(
    request: Annotated[ServeRequest, Parameter(name="*")],
    *,
    prices: Path | None = None,
    out: Out | None = None,
) -> None:
    """Find the cheapest GPUs that serve a model within latency targets; waiting in the
    queue is included.

    Args:
        prices: File with your own price list; for its format, see corral plan prices
            --help.
    """
    report_output, listed = (out or Out()).apart_from(prices), read_prices_of(prices)
    report_output.show(report(plan_serve(with_config(request), listed=listed)))
