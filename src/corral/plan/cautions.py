"""Warnings about models that the planner covers only in part, or that are used beyond
their design."""

from collections.abc import Iterator
from typing import Final

from corral.catalog.models import Model

WHOLE: Final = (
    "losses and MLPs are computed for whole sequences; libraries that compute them in tiles "
    "(Liger kernels, ALST) need less memory for long sequences"
)


def cautions(model: Model, context: int) -> Iterator[str]:
    """Yield one sentence for each warning. `context`: tokens of the longest planned
    sequence."""
    if model.context and context > model.context:
        yield (
            f"{model.name} supports a context of {model.context:,} tokens, not {context:,}: "
            "a longer one requires scaled positions, and training on such lengths"
        )
    if model.left_out:
        missing_parts = " and ".join(model.left_out)
        yield f"only the text model of {model.name} is planned, without its {missing_parts}"
