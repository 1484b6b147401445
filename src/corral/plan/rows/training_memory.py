"""Memory of a row of the training table. A row's measurement may be of different kinds
and of different ranks, and each library keeps other data in memory."""

import re
from dataclasses import replace
from typing import Final

from corral.catalog.precisions import Precision
from corral.perf.adapters import adapter_memory
from corral.perf.layout import BytesPerParameter, Recompute, TrainLayout, TrainStep
from corral.perf.memory import TrainMemory, training_memory
from corral.perf.software import EAGER, EAGER_LOGIT_BYTES
from corral.plan.rows.row import Row

RANK: Final = 8  # of LoRA, if the row has no rank: torchtune's recipes
IN_FULL: Final = BytesPerParameter(
    weight=4.0, gradient=4.0, optimizer=8.0
)  # FSDP2 keeps fp32 weights
IN_HALF: Final = BytesPerParameter(
    weight=2.0, gradient=2.0, optimizer=4.0
)  # weights and moments in 16 bits
CHUNKED_LOGIT_BYTES: Final = 0.75  # in eight chunks
# What torchtune's page adds one by one: a row that says cumulative has all up to its
# own.
RUNGS: Final = (
    "compile",
    "chunked cross entropy",
    "activation checkpointing",
    "optimizer step in backward",
    "activation offloading",
    "8-bit adam",
    "lora",
    "qlora",
)
_FUSED: Final = re.compile(r"compile|(\+|with) liger|transformer engine", re.I)
_MEGATRON_GPT: Final = re.compile(r"gpt|bloom|megatron", re.I)


def row_memory_gb(
    row: Row, step: TrainStep, layout: TrainLayout, *, library: str, architecture: str
) -> float:
    """Return the predicted memory in decimal GB, in the kind of measurement that the
    row reports.

    The default is the allocator's peak. Raises: ValueError if the layout is impossible.
    """
    memory = row_memory(row, step, layout, library=library, architecture=architecture)
    kind = row.get("memory_kind", "").lower()
    if "nvidia-smi" in kind:
        return memory.device / 1e9
    return (memory.reserved if "reserved" in kind else memory.allocated_peak) / 1e9


def _cumulative_notes(row: Row) -> str:
    notes_text = row.get("notes", "").lower()
    if "cumulative" not in notes_text:
        return notes_text
    rung_places = [
        rung_index for rung_index, rung in enumerate(RUNGS) if rung in notes_text
    ]
    return " ".join((notes_text, *RUNGS[: max(rung_places, default=-1) + 1]))


def row_memory(
    row: Row, step: TrainStep, layout: TrainLayout, *, library: str, architecture: str
) -> TrainMemory:
    """Return the memory of the last rank if the row's measurement refers to it, else
    that of the rank that needs the most."""
    notes = _cumulative_notes(row)
    step = _apply_library_defaults(notes, step, library)
    if "no sequence parallel" in notes:
        layout = replace(layout, sequence_parallel=False)
    if library == "torchtitan" and layout.recompute is Recompute.SELECTIVE:
        layout = replace(layout, recompute=Recompute.ALTERNATE)
    if (
        library == "torchtune"
        and row.get("activation_checkpointing") == "recipe default"
    ):
        layout = replace(layout, recompute=Recompute.FULL)
    if not step.state.gradient:
        weight = 0.5 if "qlora" in notes else step.state.weight
        frozen = replace(step, state=replace(step.state, weight=weight))
        return adapter_memory(frozen, layout, rank=RANK, architecture=architecture)
    is_last = "last rank" in row.get("memory_kind", "").lower()
    stage = layout.pipeline - 1 if is_last else None
    return training_memory(step, layout, stage=stage, architecture=architecture)


def _apply_library_defaults(notes: str, step: TrainStep, library: str) -> TrainStep:
    """Return the step with the states, precisions and kernels that this library uses."""
    model = step.model
    if library.startswith("megatron"):
        if model.is_gated or not _MEGATRON_GPT.search(model.name):
            return step
        gpt = replace(model, has_bias=True, positions=step.sequence)
        return replace(step, model=gpt, dropout=True)  # default of its GPT
    fused = library not in EAGER or bool(_FUSED.search(notes))
    is_trained = step.state.gradient > 0
    state = IN_FULL if library == "torchtitan" and is_trained else step.state
    if library == "torchtune" and is_trained:
        state = IN_HALF
    if "8-bit adam" in notes:
        state = replace(state, optimizer=2.0)
    if "paged optimizer" in notes and is_trained:
        state = replace(state, optimizer=0.0)  # it lies in the memory of the host
    if "optimizer in backward" in notes or "optimizer step in backward" in notes:
        state = replace(state, gradient=min(state.gradient, 0.1))
    logit = step.logit_bytes if fused else EAGER_LOGIT_BYTES
    if "chunked cross entropy" in notes or "chunked loss" in notes:
        logit = CHUNKED_LOGIT_BYTES
    half = library in (*EAGER, "torchtitan") and step.precision is Precision.FP8
    return replace(
        step,
        state=state,
        fused=fused,
        vocab_multiple=1,
        logit_bytes=logit,
        precision=Precision.BF16 if half else step.precision,
    )
