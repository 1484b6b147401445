"""`corral plan train`: the best layouts of a training run, how long the run takes, and
what would make it faster."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from corral.cli.planner.metavars import with_metavars
from corral.cli.planner.models import with_config
from corral.cli.planner.output import Out
from corral.cli.planner.prices import read_prices_of
from corral.plan.train.request import TrainRequest, answer


@with_metavars
def train(
    request: Annotated[TrainRequest, Parameter(name="*")],
    *,
    prices: Path | None = None,
    out: Out | None = None,
) -> None:
    """Find the best layouts of a training run: how long the run takes, and what would
    make it faster.

    Args:
        prices: File with your own price list; for its format, see corral plan prices
            --help.
    """
    report_output, listed = (out or Out()).apart_from(prices), read_prices_of(prices)
    report_output.show(answer(with_config(request), listed=listed))
