"""plan reliability: how often a long run fails, how often it should save, how many spares."""

from typing import Annotated

from cyclopts import Parameter

from corral.cli.planner.models import with_config
from corral.cli.planner.output import Out
from corral.plan.reliability_request import ReliabilityRequest, answer


def reliability(
    request: Annotated[ReliabilityRequest, Parameter(name="*")], *, out: Out | None = None
) -> None:
    """Say how often a long run will fail, how often it should save, and how many spares it needs.

    For example: corral plan reliability llama-3.1-405b --gpus 16384 --gpu h100 --days 54
    """
    (out or Out()).show(answer(with_config(request)))
