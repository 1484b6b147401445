"""The command plan reliability: how often a long run fails, how often it should save,
and how many spare nodes it needs."""

from typing import Annotated

from cyclopts import Parameter

from corral.cli.planner.metavars import with_metavars
from corral.cli.planner.models import with_config
from corral.cli.planner.output import Out
from corral.plan.reliability.plan import reliability as found_of
from corral.plan.reliability.report import report
from corral.plan.reliability.request import ReliabilityRequest


@with_metavars
def reliability(
    request: Annotated[ReliabilityRequest, Parameter(name="*")],
    *,
    out: Out | None = None,
) -> None:
    """Compute how often a long run fails, how often it should save, and how many spares
    it needs."""
    (out or Out()).show(report(found_of(with_config(request))))
