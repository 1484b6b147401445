"""plan serve: which GPUs serve a model within its targets, how many, and what a token costs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from corral.cli.planner.models import with_config
from corral.cli.planner.output import Out
from corral.cli.planner.prices import read_prices_of
from corral.plan.serve import ServeRequest, plan_serve
from corral.plan.serve_report import report


def serve(
    request: Annotated[ServeRequest, Parameter(name="*")],
    *,
    prices: Path | None = None,
    out: Out | None = None,
) -> None:
    """Find the cheapest GPUs that serve a model within targets of latency, queueing included.

    For example: corral plan serve llama-3.1-8b --qps 20 --input 1000 --output 200 --ttft-p90 500

    Args:
        prices: A list of one's own, in the form that plan prices --fetch writes.
    """
    listed = read_prices_of(prices)
    (out or Out()).show(report(plan_serve(with_config(request), listed=listed)))
