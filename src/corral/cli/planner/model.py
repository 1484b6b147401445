"""The command plan model: whether a model fits, and on how many GPUs."""

from typing import Annotated

from cyclopts import Parameter

from corral.cli.planner.metavars import with_metavars
from corral.cli.planner.models import with_config
from corral.cli.planner.output import Out
from corral.plan.fit.request import FitRequest, answer


@with_metavars
def model(
    request: Annotated[FitRequest, Parameter(name="*")], *, out: Out | None = None
) -> None:
    """Compute how many GPUs a model needs for serving, LoRA, full fine-tuning and
    pre-training."""
    (out or Out()).show(answer(with_config(request)))
