"""The command plan cluster: the parts of which a cluster is built."""

from typing import Annotated

from cyclopts import Parameter

from corral.cli.planner.metavars import with_metavars
from corral.cli.planner.output import Out
from corral.plan.cluster.plan import ClusterRequest, plan_cluster
from corral.plan.cluster.report import report


@with_metavars
def cluster(
    request: Annotated[ClusterRequest, Parameter(name="*")], *, out: Out | None = None
) -> None:
    """List the parts of a cluster: nodes, switches, cables, storage, racks and
    power."""
    (out or Out()).show(report(plan_cluster(request)))
