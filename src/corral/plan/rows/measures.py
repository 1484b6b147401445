"""Measured quantities in the rows of each kind of table, and the parts of each table
for which an error is published."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

from corral.plan.rows.prediction_errors import MeasuredColumn
from corral.plan.rows.row import Row

STATIC: Final = (
    "static batch, full request latency",
    "offline static batch",
    "batch 1 decode",
)
NODE_GPUS: Final = 8  # of a node, if the row has no number
LARGE_BYTES: Final = 16 * 2**20
_SPARSE: Final = re.compile(
    r"mixtral|moe|deepseek|grok|\d+x\d+b|-a\d+b|gpt-oss|llama 4", re.I
)
_NARROW: Final = re.compile(r"fp8|float8|fp4|int8", re.I)
_LORA: Final = re.compile(r"q?lora\b", re.I)
_HALF: Final = re.compile(r"(bf16|fp16)(?!.*fp8)", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a table, whose prediction error is published. `asked`: the upper limit
    for its mean absolute error; None without a limit. `name` is the subject of its
    error band in catalog/data/bands.csv."""

    name: str
    title: str
    kind: str
    measure: str
    holds: Callable[[Row], bool]
    asked: float | None = None


def number(row: Row, column: str) -> float | None:
    """Return a cell as a number; None if it is empty or not a number."""
    try:
        return float(row.get(column) or "")
    except ValueError:
        return None


def step_seconds(row: Row) -> float | None:
    """Return the measured step time, or that from the published token rate."""
    if (step_seconds_measured := number(row, "step_time_s")) is not None:
        return step_seconds_measured
    cells = ("tokens_per_s_per_gpu", "n_gpus", "global_batch", "seq_len")
    rate, gpus, batch, sequence = (number(row, cell) for cell in cells)
    if not rate or not gpus or not batch or not sequence:
        return None
    return batch * sequence / (rate * gpus)


def peak_gb(row: Row) -> float | None:
    """Return the measured peak of torch's allocator in GB; None for rows that report
    another measure of memory."""
    is_of_torch = row.get("memory_kind", "").startswith("torch ")
    return number(row, "memory_gb_per_gpu") if is_of_torch else None


def collective_us(row: Row) -> float | None:
    return number(row, "time_us")


def _column_reader(name: str) -> Callable[[Row], float | None]:
    return lambda row: number(row, name)


MEASURES: Final[Mapping[str, tuple[MeasuredColumn, ...]]] = {
    "training": (
        MeasuredColumn(
            name="step time",
            predicted="pred_step_time_s",
            unit="s",
            measured=step_seconds,
        ),
        MeasuredColumn(
            name="memory",
            predicted="pred_memory_gb_per_gpu",
            unit="GB",
            measured=peak_gb,
        ),
    ),
    "memory_ci": (
        MeasuredColumn(
            name="step time",
            predicted="pred_step_time_s",
            unit="s",
            measured=_column_reader("iter_time_s_median"),
        ),
        MeasuredColumn(
            name="memory",
            predicted="pred_memory_gb_per_gpu",
            unit="GB",
            measured=_column_reader("mem_max_allocated_gb"),
        ),
    ),
    "inference": tuple(
        MeasuredColumn(
            name=name,
            predicted=f"pred_{column}",
            unit=unit,
            measured=_column_reader(column),
        )
        for name, column, unit in (
            ("throughput", "output_tokens_per_s_total", "tokens/s"),
            ("TTFT", "ttft_ms", "ms"),
            ("ITL", "tpot_ms", "ms"),
            ("latency", "latency_ms", "ms"),
        )
    ),
    "collectives": (
        MeasuredColumn(
            name="time", predicted="pred_time_us", unit="us", measured=collective_us
        ),
    ),
}
KINDS: Final = tuple(MEASURES)


def is_good(row: Row) -> bool:
    """Return whether the quality of a row is A or B, which means that the row states
    its configuration."""
    return row.get("quality") in ("A", "B")


def _is_dense_half(row: Row) -> bool:
    half = bool(_HALF.match(row.get("precision", "")))
    return is_good(row) and not with_experts(row) and half


def with_experts(row: Row) -> bool:
    """Return whether the model is a mixture of experts."""
    return bool(_SPARSE.search(row.get("model", ""))) or (number(row, "ep") or 1) > 1


def is_narrow(row: Row) -> bool:
    """Return whether products are in 8 bits or fewer."""
    precision = row.get("precision", "")
    return not _HALF.match(precision) and bool(_NARROW.search(precision))


def is_frozen(row: Row) -> bool:
    """Return whether adapters are trained on a frozen model."""
    return bool(_LORA.search(row.get("model", "")) or _LORA.match(row.get("notes", "")))


def _is_dense_narrow(row: Row) -> bool:
    return is_good(row) and not with_experts(row) and is_narrow(row)


def nodes_of(row: Row) -> float:
    """Return the number of nodes. If the row does not give it, assume nodes of eight
    GPUs."""
    return number(row, "nodes") or ceil((number(row, "n_gpus") or 1.0) / NODE_GPUS)


def _is_large(row: Row) -> bool:
    is_bulk_collective = row.get("collective") in (
        "all_reduce",
        "all_gather",
        "reduce_scatter",
    )
    return is_bulk_collective and (number(row, "size_bytes") or 0) >= LARGE_BYTES


def _is_static(row: Row) -> bool:
    return row.get("quality") == "A" and row.get("scenario") in STATIC


def _is_loaded(row: Row) -> bool:
    """Return whether the row has a known configuration and an online scenario: a stream
    of requests with a known rate and known lengths."""
    return is_good(row) and row.get("scenario", "").startswith("online")


SLICES: Final = (
    Slice(
        name="training.step_time.nodes",
        kind="training",
        measure="step time",
        asked=0.08,
        title="step time, quality A and B, bf16 and fp16, dense, more than one node",
        holds=lambda row: _is_dense_half(row) and nodes_of(row) > 1,
    ),
    Slice(
        name="training.step_time.one_node",
        kind="training",
        measure="step time",
        asked=0.08,
        title="step time, the same, one node, models of 1B and more",
        holds=lambda row: (
            _is_dense_half(row)
            and nodes_of(row) <= 1
            and (number(row, "params") or 0) >= 1e9
        ),
    ),
    Slice(
        name="training.step_time.experts",
        kind="training",
        measure="step time",
        title="step time, quality A and B, mixture of experts, any precision",
        holds=lambda row: is_good(row) and with_experts(row),
    ),
    Slice(
        name="training.step_time.narrow",
        kind="training",
        measure="step time",
        title="step time, quality A and B, dense, 8 bits and fewer",
        holds=_is_dense_narrow,
    ),
    Slice(
        name="training.memory",
        kind="training",
        measure="memory",
        asked=0.08,
        title="memory per GPU, allocator peak",
        holds=is_good,
    ),
    Slice(
        name="memory_ci.memory",
        kind="memory_ci",
        measure="memory",
        asked=0.08,
        title="memory per GPU, allocator peak, Megatron-LM's functional tests",
        holds=lambda row: True,
    ),
    Slice(
        name="memory_ci.step_time",
        kind="memory_ci",
        measure="step time",
        title="step time, Megatron-LM's functional tests (host-bound, deterministic)",
        holds=lambda row: True,
    ),
    Slice(
        name="inference.static",
        kind="inference",
        measure="throughput",
        asked=0.12,
        title="decode and static-batch throughput, quality A",
        holds=_is_static,
    ),
    Slice(
        name="serving.ttft",
        kind="inference",
        measure="TTFT",
        asked=0.20,
        title="serving under load: TTFT",
        holds=_is_loaded,
    ),
    Slice(
        name="serving.itl",
        kind="inference",
        measure="ITL",
        asked=0.12,
        title="serving under load: ITL",
        holds=_is_loaded,
    ),
    Slice(
        name="serving.latency",
        kind="inference",
        measure="latency",
        asked=0.10,
        title="serving under load: end to end",
        holds=_is_loaded,
    ),
    Slice(
        name="collectives.one_node",
        kind="collectives",
        measure="time",
        asked=0.08,
        title="all-reduce, all-gather, reduce-scatter of 16 MB and more, one node",
        holds=lambda row: _is_large(row) and nodes_of(row) <= 1,
    ),
    Slice(
        name="collectives.nodes",
        kind="collectives",
        measure="time",
        asked=0.20,
        title="all-reduce, all-gather, reduce-scatter of 16 MB and more, many nodes",
        holds=lambda row: _is_large(row) and nodes_of(row) > 1,
    ),
)
