"""Prediction functions by kind of table, and the columns that they predict."""

from collections.abc import Mapping
from math import isfinite
from typing import Final

from corral.domain.errors import NotFound
from corral.plan.rows import collectives, inference, memory, training
from corral.plan.rows.row import Predict, Predicted, Row, RowRefused

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
    "memory_ci": (
        "pred_step_time_s",
        "pred_tokens_per_s_per_gpu",
        "pred_memory_gb_per_gpu",
        "pred_memory_steady_gb_per_gpu",
    ),
}
PREDICTORS: Final[Mapping[str, Predict]] = {
    "collectives": collectives.predict,
    "inference": inference.predict,
    "training": training.predict,
    "memory_ci": memory.predict,
}
# upper bound of a count: no run has this many GPUs, layers or sequences
_MOST: Final = 1e9
_COUNTS: Final = (
    *(
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "ffn",
        "vocab",
        "num_experts",
        "topk",
        "moe_ffn",
    ),
    *(
        "n_gpus",
        "nodes",
        "gpus_per_node",
        "dp",
        "tp",
        "pp",
        "cp",
        "ep",
        "etp",
        "vp",
        "vp_layers",
    ),
    *(
        "seq_len",
        "global_batch",
        "micro_batch",
        "input_len",
        "output_len",
        "batch_or_concurrency",
    ),
)


class Cells(dict[str, str]):
    """A table row. A column that the row does not have reads as an empty cell."""

    def __missing__(self, column: str) -> str:
        return ""


def predictor(kind: str) -> Predict:
    """Return the function that predicts a row of that kind of table. It predicts or
    refuses each row; a bad row does not stop the whole table.

    Raises: NotFound, with the nearest kind.
    """
    if kind not in PREDICTORS:
        raise NotFound(
            "kind of table", kind, list(PREDICTORS), see="corral plan predict --help"
        )
    predict = PREDICTORS[kind]

    def predicted(row: Row) -> Predicted:
        _refuse_what_nobody_has(row)
        try:
            prediction = predict(Cells(row))
        except (ValueError, ArithmeticError, LookupError) as wrong:
            raise RowRefused(
                f"the row contains an impossible value: {wrong}"
            ) from wrong
        if not all(
            isfinite(value) and value > 0 for value in prediction.values.values()
        ):
            raise RowRefused(
                "the values of the row give no positive, finite prediction"
            )
        return prediction

    return predicted


def _refuse_what_nobody_has(row: Row) -> None:
    for column in _COUNTS:
        try:
            value = float(row.get(column) or 0)
        except ValueError:
            continue  # words, which each kind reads in its own way
        if not (isfinite(value) and abs(value) <= _MOST):
            raise RowRefused(
                f"{column} cannot be {row[column]}",
                hint=f"give a number of at most {_MOST:g}",
            )
