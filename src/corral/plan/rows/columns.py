"""Columns that a table of each kind needs, used to check a table or find its kind."""

from collections.abc import Collection, Mapping
from typing import Final

from corral.domain.errors import Refusal

# Without these no row can be predicted; their cells may be empty where something else
# says as much.
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "collectives": ("collective", "gpu", "n_gpus", "size_bytes"),
    "inference": (
        "model",
        "gpu",
        "n_gpus",
        "batch_or_concurrency",
        "input_len",
        "output_len",
    ),
    "training": ("model", "gpu", "n_gpus", "seq_len"),
    "memory_ci": (
        "family",
        "gpu",
        "layers",
        "hidden",
        "heads",
        "seq_len",
        "micro_batch",
        "global_batch",
    ),
}
MEASURED: Final[Mapping[str, tuple[str, ...]]] = {
    "collectives": ("time_us",),
    "inference": ("output_tokens_per_s_total", "ttft_ms", "tpot_ms", "latency_ms"),
    "training": ("step_time_s", "tokens_per_s_per_gpu", "memory_gb_per_gpu"),
    "memory_ci": ("mem_max_allocated_gb", "iter_time_s_median"),
}


class ColumnsMissing(Refusal):
    """Refusal of a table that has another kind, or lacks the columns of its kind."""

    code = "columns_missing"


def check_columns(
    kind: str, columns: Collection[str], *, measured: bool = False
) -> None:
    """Check that a table of this kind has its required columns; with `measured`, also a
    measured column to compare predictions with. Raises: ColumnsMissing."""
    if missing := [name for name in NEEDED[kind] if name not in columns]:
        raise ColumnsMissing(
            f"a table of the kind {kind} requires the columns {', '.join(NEEDED[kind])}; "
            f"this table lacks {', '.join(missing)}",
            hint=_column_hint(kind, columns),
        )
    if measured and not any(name in columns for name in MEASURED[kind]):
        raise ColumnsMissing(
            "the table contains no measured values: it has none of the columns "
            f"{', '.join(MEASURED[kind])}",
            hint="add one of these columns, or run: corral plan predict FILE "
            f"--kind {kind} --out OUT",
        )


def _column_hint(kind: str, columns: Collection[str]) -> str:
    matching_kinds = [
        kind_name
        for kind_name in NEEDED
        if kind_name != kind and set(NEEDED[kind_name]) <= set(columns)
    ]
    if matching_kinds:
        return f"its columns are those of the kind {matching_kinds[0]}: use this kind"
    return "rename or add columns; for the columns of each kind run: corral plan predict --help"
