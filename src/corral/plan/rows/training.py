"""Step time and memory of one row of the training table. Its cells are read as a user
would write them."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Final

from corral.catalog.devices import Device, device
from corral.catalog.links import LinkKind, link
from corral.catalog.models import Model
from corral.catalog.precisions import Precision
from corral.domain.errors import NotFound
from corral.perf.layout import (
    BytesPerParameter,
    Recompute,
    Shard,
    TrainLayout,
    TrainStep,
)
from corral.perf.memory import training_memory
from corral.perf.software import DEFAULT, Software, software
from corral.perf.topology import Wires
from corral.perf.train_step_time import step_time
from corral.plan.rows.measures import is_frozen
from corral.plan.rows.model import model_of_row, sequence_of, whole
from corral.plan.rows.row import Predicted, Row, RowRefused
from corral.plan.rows.training_memory import row_memory_gb

LORA: Final = BytesPerParameter(
    gradient=0.0, optimizer=0.0
)  # the model is frozen, its adapters are small
# Libraries by the words that a row uses of them, the more special ones first.
LIBRARIES: Final = (
    (r"megatron-lm.* deterministic mode", "megatron-tests"),
    (r"maxtext|\bjax\b|\btpu\b|\bici\b", "maxtext"),
    (r"llm-foundry|mosaic", "llm-foundry"),
    (r"megatron[ -]bridge|\bnemo\b", "megatron-core"),  # whose FSDP is Megatron's own
    (r"torchtitan|fsdp2", "torchtitan"),
    (r"torchtune", "torchtune"),
    (r"2104\.04473|2205\.05198|readme 2020|none \(ddp\)", "megatron-2021"),
    (r"megatron-deepspeed|bigscience|neox|glm-130b|mt-nlg", "megatron-deepspeed"),
    (r"no gradient bucketing", "megatron-2021"),
    (r"deepspeed|zero-[23]|\bfsdp\b|full_shard|torch\.compile|hugging", "pytorch"),
)
PASSES: Final = 8  # default micro batches per stage: a ninth of the step is bubble
OLD: Final = ("megatron-2021", "megatron-deepspeed")  # no flash kernel yet
# Fabrics by the words of an interconnect cell.
FABRICS: Final = (
    (r"efa", "efa-p5"),
    (r"omni-?path", "omni-path-100"),
    (r"slingshot", "slingshot-11"),
    (r"roce.*1600 gb/s per node|roce.*200", "roce-200"),
    (r"800 gb/s per 8-gpu", "ib-edr"),
    (r"cx8|800 gb/s|xdr", "ib-xdr"),
    (r"cx-?7|connectx-7|400 ?gb|ndr", "ib-ndr"),
    (r"hdr|200 ?gb", "ib-hdr"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """A row of the training table in the planner's terms."""

    step: TrainStep
    layout: TrainLayout
    device: Device
    wires: Wires
    by: Software
    # sequences that the row says; the step's may be a little more, to come out even
    batch: float
    batch_is_given: bool
    remarks: tuple[str, ...]


def predict(row: Row) -> Predicted:
    """Return seconds of a step, tokens per second and GPU, and memory. Raises:
    RowRefused."""
    run = read(row)
    seconds = step_time(run.step, run.layout, run.device, run.wires, by=run.by).seconds
    rate = run.step.tokens / seconds / run.layout.gpus
    memory_gb = row_memory_gb(
        row,
        run.step,
        run.layout,
        library=run.by.name,
        architecture=run.device.architecture,
    )
    values = {
        "pred_tokens_per_s_per_gpu": rate,
        "pred_memory_gb_per_gpu": memory_gb,
    }
    if run.batch_is_given:
        values["pred_step_time_s"] = seconds * run.batch / run.step.global_batch
    return Predicted(values=values, remarks=run.remarks)


def read(row: Row) -> TrainingRow:
    """Read a row, with defaults for empty cells. Raises: RowRefused."""
    remarks: list[str] = []
    if re.search(r"full offload", row.get("notes", ""), re.I):
        raise RowRefused(
            "runs that offload the whole model to the host's memory are not supported"
        )
    gpu_device = _read_device(row)
    train_software = software(library(row))
    model = model_of_row(row, remarks)
    sequence = sequence_of(row, remarks)
    row = _with_batch(row, sequence, remarks)
    gpus = whole(row, "n_gpus") or _gpus_of_parts(row)
    layout = _by_slices(
        row,
        _build_layout(row, gpus, train_software, model, remarks),
        gpu_device,
        remarks,
    )
    batch = whole(row, "global_batch")
    even = layout.data * layout.micro_batch
    if batch is not None and batch < even:
        layout = replace(layout, micro_batch=max(batch // layout.data, 1))
        even = layout.data * layout.micro_batch
    if batch is None:
        micro_batches = PASSES * layout.pipeline if layout.pipeline > 1 else 1
        remarks.append(
            f"{micro_batches} micro batches on each of {layout.data} data-parallel GPUs"
        )
    asked_batch = batch if batch is not None else micro_batches * even
    count = max(round(asked_batch / even), 1)
    precision = _precision(row, gpu_device, remarks)
    step = TrainStep(
        model=model,
        sequence=sequence,
        global_batch=count * even,
        precision=precision,
        state=replace(LORA, weight=min(2.0, precision.bytes))
        if is_frozen(row)
        else BytesPerParameter(),
        has_flash=_has_flash(train_software, remarks),
    )
    run = TrainingRow(
        step=step,
        layout=layout,
        device=gpu_device,
        wires=_build_wires(row, gpu_device, gpus),
        by=train_software,
        batch=float(asked_batch),
        batch_is_given=batch is not None,
        remarks=tuple(remarks),
    )
    return _to_fit(row, run)


def _with_batch(row: Row, sequence: int, remarks: list[str]) -> Row:
    """Return the row with its batch filled in for logs that state no batch, computed
    from the tokens of a step in the notes."""
    tokens = re.search(r"tokens per step ([\d,]+)", row.get("notes", ""))
    if whole(row, "global_batch") or not tokens:
        return row
    batch = max(round(int(tokens[1].replace(",", "")) / sequence), 1)
    remarks.append(f"a batch of {batch} sequences, from the tokens of a step")
    return {**row, "global_batch": str(batch)}


def _to_fit(row: Row, run: TrainingRow) -> TrainingRow:
    """Return the row with a choice of recomputation that fits in memory, if the row
    states none. The first option that fits is used: no recomputation; no recomputation
    with gradients of 16 bits; then each layer recomputed, in the same way. If no option
    fits, each layer is recomputed if all states are sharded, since nothing else could
    make the run fit; otherwise the row is unchanged."""
    recompute_text = row.get("activation_checkpointing", "").lower()
    if recompute_text and not recompute_text.startswith(
        ("not stated", "see ", "recipe default")
    ):
        return run
    half_gradient_step = replace(
        run.step,
        state=replace(run.step.state, gradient=min(2.0, run.step.state.gradient)),
    )
    recompute_layout = replace(run.layout, recompute=Recompute.FULL)
    for step, layout, fit_remark in (
        (run.step, run.layout, "nothing is recomputed"),
        (
            half_gradient_step,
            run.layout,
            "nothing is recomputed, and gradients have 16 bits to fit",
        ),
        (run.step, recompute_layout, "each layer is recomputed, to fit"),
        (
            half_gradient_step,
            recompute_layout,
            "each layer is recomputed and gradients have 16 bits, to fit",
        ),
    ):
        needed = training_memory(step, layout, architecture=run.device.architecture)
        if needed.device <= run.device.memory_bytes:
            return replace(
                run, step=step, layout=layout, remarks=(*run.remarks, fit_remark)
            )
    if run.layout.shard is not Shard.PARAMETERS:
        return replace(
            run,
            remarks=(
                *run.remarks,
                "nothing is recomputed, although the run does not fit",
            ),
        )
    remarks = (
        *run.remarks,
        "each layer is recomputed, although the run does not fit even so",
    )
    return replace(run, layout=recompute_layout, remarks=remarks)


def library(row: Row) -> str:
    """Return the name of the training library of the row, or of the default library."""
    cells = (
        "fsdp_zero_stage",
        "source",
        "url_or_repo_path",
        "notes",
        "interconnect",
        "gpu",
    )
    text = " ".join(row.get(cell, "") for cell in cells).lower()
    for pattern, name in LIBRARIES:
        if re.search(pattern, text):
            return name
    return DEFAULT


def _read_device(row: Row) -> Device:
    try:
        return device(row.get("gpu", ""))
    except NotFound as wrong:
        raise RowRefused(
            f"the GPU is not known: {row.get('gpu') or '(none)'}"
        ) from wrong


def _gpus_of_parts(row: Row) -> int:
    parallel_sizes = [whole(row, name) or 1 for name in ("dp", "tp", "pp", "cp")]
    return parallel_sizes[0] * parallel_sizes[1] * parallel_sizes[2] * parallel_sizes[3]


def _build_layout(
    row: Row, gpus: int, by: Software, model: Model, remarks: list[str]
) -> TrainLayout:
    tensor, pipeline, context, expert = (
        whole(row, name) or 1 for name in ("tp", "pp", "cp", "ep")
    )
    if model.experts and not any(whole(row, name) for name in ("dp", "tp", "pp", "ep")):
        expert = gcd(model.experts.count, gpus)
        remarks.append(f"experts are spread over {expert} GPUs")
    apart = tensor * pipeline * context
    if gpus % apart:
        raise RowRefused(
            f"n_gpus is {gpus}: it must be a multiple of tp x pp x cp, which is {apart}"
        )
    recompute_text = row.get("activation_checkpointing", "").lower()
    in_sequence = "sequence parallel" in recompute_text
    if by.interleaves and tensor > 1 and not in_sequence:
        in_sequence = True
        remarks.append("sequence parallelism with tensor parallelism")
    return TrainLayout(
        data=gpus // apart,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=expert,
        interleave=_pipeline_interleave(row, pipeline, by, model, remarks),
        micro_batch=_micro_batch(row, gpus // apart, by, remarks),
        shard=_read_sharding(row, by, remarks),
        sequence_parallel=in_sequence,
        recompute=_recompute(recompute_text),
    )


def _micro_batch(row: Row, data: int, by: Software, remarks: list[str]) -> int:
    if (micro_batch := whole(row, "micro_batch")) is not None:
        return micro_batch
    batch = whole(row, "global_batch")
    # it adds up no gradients unless it is asked to
    if by.name == "maxtext" and batch is not None:
        remarks.append("all sequences of a GPU in one pass")
        return max(batch // data, 1)
    remarks.append("a micro batch of one sequence")
    return 1


def _by_slices(
    row: Row, layout: TrainLayout, used: Device, remarks: list[str]
) -> TrainLayout:
    """Return the layout for TPUs in several slices, if the row does not state one: each
    slice holds the whole model, sharded within the slice.

    Source: MaxText, docs of multislice: FSDP inside of a slice, data parallelism
    between them.
    """
    slices, rest = divmod(layout.gpus, used.domain_gpus)
    if used.vendor != "Google" or row.get("fsdp_zero_stage") or slices < 2 or rest:
        return layout
    if layout.shard is not Shard.PARAMETERS or layout.data % slices:
        return layout
    remarks.append(f"the model is sharded within each of {slices} slices")
    return replace(layout, replicas=slices)


def _pipeline_interleave(
    row: Row, pipeline: int, by: Software, model: Model, remarks: list[str]
) -> int:
    if pipeline == 1:
        return 1
    pieces = whole(row, "vp")
    if pieces is not None:
        return pieces
    if not by.interleaves or model.layers % pipeline:
        return 1
    remarks.append("interleaved pipeline stages of one layer")
    return model.layers // pipeline


def _read_sharding(row: Row, by: Software, remarks: list[str]) -> Shard:
    sharding_text = row.get("fsdp_zero_stage", "").lower()
    if not sharding_text and not any(
        row.get(size_column, "") for size_column in ("dp", "tp", "pp")
    ):
        remarks.append("everything is sharded (FSDP)")
        return Shard.PARAMETERS
    if not sharding_text and by.interleaves:  # as recipes of the library do
        remarks.append("the optimizer is sharded (ZeRO-1)")
        return Shard.OPTIMIZER
    return _parse_shard(sharding_text)


def _parse_shard(said: str) -> Shard:
    if "zero-2" in said or "shard_grad_op" in said or "zero2" in said:
        return Shard.GRADIENTS
    if "fsdp" in said or "zero-3" in said or "zero3" in said:
        return Shard.PARAMETERS
    if "zero-1" in said or "zero1" in said or "distributed" in said:
        return Shard.OPTIMIZER
    return Shard.NONE


def _recompute(said: str) -> Recompute:
    if said.startswith("full"):
        return Recompute.FULL
    return Recompute.SELECTIVE if "selective" in said else Recompute.NONE


def _precision(row: Row, used: Device, remarks: list[str]) -> Precision:
    """Return the stated precision. MLPerf submissions that state none count as fp8 if
    the GPU supports it, because all submissions that state a precision use fp8."""
    precision_text = row.get("precision", "").lower()
    if "not stated" in precision_text and "mlperf" in row.get("source", "").lower():
        narrow = Precision.FP8 if Precision.FP8 in used.flops else Precision.BF16
        remarks.append(f"matrix products in {narrow}")
        return narrow
    if "fp4" in precision_text:
        return Precision.FP4
    if "fp8" in precision_text or "float8" in precision_text:
        return Precision.FP8
    if "int8" in precision_text:
        return Precision.INT8
    return (
        Precision.FP16
        if "fp16" in precision_text and "bf16" not in precision_text
        else Precision.BF16
    )


def _has_flash(by: Software, remarks: list[str]) -> bool:
    if by.name in OLD:
        remarks.append("attention without a flash kernel, as in libraries before 2023")
        return False
    return True


def _build_wires(row: Row, used: Device, gpus: int) -> Wires:
    nodes = whole(row, "nodes") or 1
    gpus_per_node = max(gpus // nodes, 1)
    domain = used.domain_gpus
    if nodes > 1 and gpus_per_node < used.node_gpus and domain <= used.node_gpus:
        domain = min(domain, gpus_per_node)  # smaller nodes than usual
    wires_text = row.get("interconnect", "").lower()
    return Wires(
        scale_up=used.scale_up,
        domain_gpus=domain,
        fabric=_parse_fabric(wires_text, used),
    )


@lru_cache(maxsize=4096)
def _named_fabric(said: str) -> LinkKind | None:
    for pattern, name in FABRICS:
        if re.search(pattern, said):
            return link(name)
    return None


def _parse_fabric(said: str, used: Device) -> LinkKind:
    return _named_fabric(said) or used.fabric
