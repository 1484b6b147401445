"""Warnings about models that the planner covers only in part, or that are used beyond
their design."""

from collections.abc import Iterator
from typing import Final

from corral.catalog.models import Model

WHOLE: Final = (
    "losses and MLPs are computed for whole sequences; libraries that tile them (Liger kernels, "
    "ALST) need less memory for long ones"
)


def cautions(model: Model, context: int) -> Iterator[str]:
    """Yield one sentence for each warning. `context`: tokens of the longest planned
    sequence."""
    if model.context and context > model.context:
        yield (
            f"{model.name} was made for {model.context:,} tokens of context, not {context:,}: "
            "for more its positions must be stretched, and it must be trained on such lengths"
        )
    if model.left_out:
        missing_parts = " and ".join(model.left_out)
        yield f"{model.name} is reckoned as its text model: its {missing_parts} is left out"
