"""Servers as rows of the inference table describe them."""

from dataclasses import dataclass
from typing import Final

from corral.catalog.devices import Device, device
from corral.catalog.model_names import model
from corral.catalog.models import Model, ModelRefused, model_of_dimensions
from corral.domain.errors import NotFound
from corral.perf.engines import engine
from corral.perf.inference import Replica
from corral.perf.topology import Wires
from corral.plan.parse.links import said_across
from corral.plan.parse.precisions import said_precision
from corral.plan.rows.row import Row, RowRefused

LAYER_SPLIT: Final = "llama.cpp"  # cuts a model by its layers, never by its matrices
NARROW_CACHE: Final = ("tensorrt-llm", "tensorrt-llm-0")  # fp8 cache with fp8 weights


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkServer:
    """A server that runs `copies` replicas of a model on `gpus` GPUs in all."""

    replica: Replica
    copies: int
    gpus: int


def number(row: Row, column: str) -> float | None:
    """Return a cell as a number; None if it is empty. Raises: RowRefused if it is not a
    number."""
    cell = row.get(column, "").strip()
    try:
        return float(cell) if cell else None
    except ValueError:
        raise RowRefused(f"{column} is {cell}: it must be a number") from None


def server_of(row: Row, remarks: list[str]) -> BenchmarkServer:
    """Return the server that the row describes. Raises: RowRefused."""
    try:
        gpu = device(row["gpu"])
    except NotFound as unknown:
        raise RowRefused(unknown.message, hint=unknown.hint) from unknown
    gpus = _read_positive_int(row, "n_gpus", 1, remarks)
    runs = engine(row["engine"])
    if runs.name == "default":
        remarks.append("an engine like the measured ones")
    tensor, pipeline = (
        _read_positive_int(row, "tp", 1, []),
        _read_positive_int(row, "pp", 1, []),
    )
    data, expert = (
        _read_positive_int(row, "dp", 1, []),
        _read_positive_int(row, "ep", 1, []),
    )
    if runs.name == LAYER_SPLIT:
        tensor, pipeline = 1, max(tensor * pipeline, gpus)
    attends_apart = data > 1 and expert > 1
    stored_precision = said_precision(
        row["precision"], gpu, narrow_cache=runs.name in NARROW_CACHE
    )
    remarks.extend(stored_precision.remarks)
    shape = model_of(row, remarks)
    try:
        replica = Replica(
            model=shape,
            device=gpu,
            wires=wires_of(row, gpu, gpus),
            engine=runs,
            tensor=tensor,
            pipeline=pipeline,
            data=data if attends_apart else 1,
            expert=expert,
            precision=stored_precision.precision,
            weight_bytes=stored_precision.weight_bytes,
            kv_bytes=stored_precision.kv_bytes,
        )
    except ValueError as wrong:
        raise RowRefused(str(wrong)) from wrong
    return BenchmarkServer(
        replica=replica, copies=max(1, gpus // replica.gpus), gpus=gpus
    )


def _read_positive_int(row: Row, column: str, default: int, remarks: list[str]) -> int:
    value = number(row, column)
    if value is None:
        remarks.append(f"{column} is {default}")
        return default
    if value < 1 or value != int(value):
        raise RowRefused(
            f"{column} is {row[column]}: it must be a whole number of at least 1"
        )
    return int(value)


def model_of(row: Row, remarks: list[str]) -> Model:
    """Return the catalog's model of that name if it has the row's dimensions, else a
    model with these dimensions.

    Raises: RowRefused if neither the name nor the dimensions define a model.
    """
    try:
        known_model = model(row["model"])
    except (NotFound, ModelRefused):
        known_model = None
    stated_sizes = {
        column: number(row, column) for column in ("layers", "hidden", "heads", "vocab")
    }
    if known_model is not None:
        has_same_sizes = all(
            value is None or value == getattr(known_model, column)
            for column, value in stated_sizes.items()
            if column != "vocab"  # padded by some
        )
        if has_same_sizes:
            return known_model
    sizes = {
        column: int(value)
        for column, value in stated_sizes.items()
        if value is not None
    }
    if len(sizes) < len(stated_sizes):
        raise RowRefused(
            f"the catalog does not contain the model {row['model'] or '(none)'}",
            hint="fill the columns layers, hidden, heads and vocab",
        )
    remarks.append("a dense model with the row's dimensions")
    try:
        return model_of_dimensions(
            layers=sizes["layers"],
            hidden=sizes["hidden"],
            heads=sizes["heads"],
            vocab=sizes["vocab"],
            kv_heads=_read_positive_int(row, "kv_heads", sizes["heads"], []),
            ffn=_read_positive_int(row, "ffn", 4 * sizes["hidden"], []),
            parameters=number(row, "params") or 0,
            name=row["model"],
        )
    except ModelRefused as wrong:
        raise RowRefused(wrong.message, hint=wrong.hint) from wrong


def wires_of(row: Row, gpu: Device, gpus: int) -> Wires:
    """Return the links of the server: the device's own, and the network that the row
    names or the usual one."""
    nodes = number(row, "nodes") or 1
    across = said_across(row["interconnect"], node_gpus=gpu.node_gpus)
    return Wires(
        scale_up=gpu.scale_up,
        domain_gpus=max(gpu.domain_gpus, int(gpus // nodes) or 1),
        fabric=across or gpu.fabric,
    )
