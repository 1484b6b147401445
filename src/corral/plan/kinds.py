"""All kinds of plan that a single call answers, each with its request class and its
answering function."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from corral.plan.cluster.plan import ClusterRequest, plan_cluster
from corral.plan.cluster.report import report as of_cluster
from corral.plan.cost.bills import CostRequest
from corral.plan.cost.plan import cost
from corral.plan.cost.report import report as of_cost
from corral.plan.fit.request import FitRequest
from corral.plan.fit.request import answer as of_fit
from corral.plan.reliability.plan import reliability
from corral.plan.reliability.report import report as of_reliability
from corral.plan.reliability.request import ReliabilityRequest
from corral.plan.report import PlannerReport
from corral.plan.serve.plan import ServeRequest, plan_serve
from corral.plan.serve.report import report as of_serve
from corral.plan.train.request import TrainRequest
from corral.plan.train.request import answer as of_train


@dataclass(frozen=True, slots=True)
class PlanKind:
    """A kind of plan. `request`: a frozen dataclass of plain values. `answer` returns
    the report, and raises a Refusal if it cannot."""

    request: type
    answer: Callable[[Any], PlannerReport]


ASKS: Final[Mapping[str, PlanKind]] = {
    "cost": PlanKind(CostRequest, lambda asked: of_cost(cost(asked))),
    "model": PlanKind(FitRequest, of_fit),
    "cluster": PlanKind(ClusterRequest, lambda asked: of_cluster(plan_cluster(asked))),
    "reliability": PlanKind(
        ReliabilityRequest, lambda asked: of_reliability(reliability(asked))
    ),
    "serve": PlanKind(ServeRequest, lambda asked: of_serve(plan_serve(asked))),
    "train": PlanKind(TrainRequest, of_train),
}
