"""plan reliability: how often a long run fails, how often it should save, how many spares."""

from typing import Annotated

from cyclopts import Parameter

from corral.cli.planner.output import Out
from corral.plan.reliability import LongRun
from corral.plan.reliability import reliability as found_of
from corral.plan.reliability_report import report


def reliability(run: Annotated[LongRun, Parameter(name="*")], *, out: Out | None = None) -> None:
    """Say how often a long run will fail, how often it should save, and how many spares it needs.

    For example: corral plan reliability --nodes 128 --work-days 30 --parameters 70e9
    """
    (out or Out()).show(report(found_of(run)))
