"""Which function predicts a row of which kind of table, and what it predicts."""

from collections.abc import Mapping
from typing import Final

from corral.domain.errors import NotFound
from corral.plan import rows_collectives, rows_inference, rows_memory, rows_training
from corral.plan.rows import Predict

PREDICTED: Final[Mapping[str, tuple[str, ...]]] = {
    "collectives": ("pred_time_us",),
    "inference": (
        "pred_output_tokens_per_s_total",
        "pred_ttft_ms",
        "pred_tpot_ms",
        "pred_latency_ms",
    ),
    "training": (
        "pred_step_time_s",
        "pred_tokens_per_s_per_gpu",
        "pred_memory_gb_per_gpu",
    ),
    "memory_ci": ("pred_memory_gb_per_gpu", "pred_memory_steady_gb_per_gpu"),
}
PREDICTORS: Final[Mapping[str, Predict]] = {
    "collectives": rows_collectives.predict,
    "inference": rows_inference.predict,
    "training": rows_training.predict,
    "memory_ci": rows_memory.predict,
}


def predictor(kind: str) -> Predict:
    """What predicts rows of that kind of table.

    Raises: NotFound, with the nearest kind.
    """
    if kind not in PREDICTORS:
        raise NotFound("kind of table", kind, list(PREDICTORS), see="corral plan predict --help")
    return PREDICTORS[kind]
