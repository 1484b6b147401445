"""Plan for whether a model fits in GPU memory, for each use, and on how many GPUs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, gcd
from typing import Final

from corral.catalog.devices import Device
from corral.catalog.models import Model
from corral.catalog.overheads import overhead
from corral.catalog.precisions import Precision
from corral.domain.units import counted
from corral.perf.adapters import adapter_memory
from corral.perf.layout import (
    BytesPerParameter,
    Recompute,
    Shard,
    TrainLayout,
    TrainStep,
)
from corral.perf.memory import TrainMemory, training_memory
from corral.perf.serving_memory import ServingReplica, serving_memory
from corral.plan.train.layout_text import in_short

MOST_GPUS: Final = 4_096  # if the request has no limit
WIDEST: Final = 8  # GPUs that a layer is cut over at the most
BETWEEN: Final = 8  # counts that are tried between one that is too small and its double
LONGEST: Final = 2**24  # tokens at which the search for the longest context ends
PASSES: Final = 4  # micro batches for each pipeline stage in one step of pre-training
FINE_TUNED: Final = BytesPerParameter(
    weight=2.0, gradient=2.0, optimizer=12.0
)  # arXiv:1910.02054, section 3.1


class Purpose(StrEnum):
    INFERENCE = "inference"
    LORA = "LoRA"
    FULL = "full fine-tuning"
    PRETRAINING = "pre-training"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitUse:
    """How a model is to be served or trained.

    Serving runs `batch` sequences of `context` tokens at once. Training runs one
    sequence of `context` tokens in each pass. `precision`: that of served or frozen
    weights. `trained`: that of the matrix products in training. `gpus`: the maximum
    number of GPUs. `rank`: that of LoRA's matrices.
    """

    model: Model
    device: Device
    context: int = 8_192
    batch: int = 16
    precision: Precision = Precision.BF16
    trained: Precision = Precision.BF16
    kv_precision: Precision = Precision.BF16
    gpus: int | None = None
    rank: int = 16

    def __post_init__(self) -> None:
        if min(self.context, self.batch, self.rank, self.gpus or 1) < 1:
            raise ValueError("context, batch, rank and GPUs must be at least 1 each")

    @property
    def usable_bytes(self) -> float:
        """Return the memory of one GPU that a plan may fill."""
        return self.device.memory_bytes * (
            1 - overhead(self.device.architecture).kept_free
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FitCandidate:
    """The best layout on `gpus` GPUs. `parts`: the memory of its fullest GPU by use.
    `usable`: memory that may be filled."""

    gpus: int
    layout: str
    parts: Mapping[str, float]
    usable: float

    @property
    def needed(self) -> float:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        return self.needed <= self.usable


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Attempts to fit a model for a purpose, with increasing numbers of GPUs. The last
    attempt fits; if it does not, no number of GPUs fits. `nearest`: changes with which
    it would fit."""

    purpose: Purpose
    tried: tuple[FitCandidate, ...]
    nearest: tuple[str, ...] = ()

    @property
    def best(self) -> FitCandidate:
        return self.tried[-1]

    @property
    def gpus(self) -> int | None:
        return self.best.gpus if self.best.fits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """Results for a model and all purposes. `longest`: the longest context that the
    serving layout could hold, in tokens. `most`: the most sequences it could hold."""

    ask: FitUse
    fits: tuple[Fit, ...]
    longest: int
    most: int

    def of(self, purpose: Purpose) -> Fit:
        return next(fit for fit in self.fits if fit.purpose is purpose)


def fitting(ask: FitUse) -> Fitting:
    """Return the numbers of GPUs on which a model fits for each purpose. If it does not
    fit, include changes with which it would."""
    fits = tuple(_find_fit(ask, purpose) for purpose in Purpose)
    best_candidate = fits[0].best
    return Fitting(
        ask=ask,
        fits=fits,
        longest=longest_context(ask, best_candidate.gpus),
        most=largest_batch(ask, best_candidate.gpus),
    )


def longest_context(ask: FitUse, gpus: int) -> int:
    """Return the largest number of tokens per sequence with which `gpus` GPUs can serve
    the batch; 0 if they cannot serve it."""
    return _largest_that_holds(
        lambda size: _fits_on_gpus(replace(ask, context=size), Purpose.INFERENCE, gpus),
        LONGEST,
    )


def largest_batch(ask: FitUse, gpus: int) -> int:
    """Return the number of sequences that `gpus` GPUs can serve at once; 0 if they
    cannot."""
    return _largest_that_holds(
        lambda size: _fits_on_gpus(replace(ask, batch=size), Purpose.INFERENCE, gpus),
        LONGEST,
    )


def _fits_on_gpus(ask: FitUse, purpose: Purpose, gpus: int) -> bool:
    fit_candidate = on_gpus(ask, gpus, purpose)
    return fit_candidate is not None and fit_candidate.fits


def _largest_that_holds(holds: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` for which `holds` is true; it must then be
    true for all smaller numbers."""
    lower_bound, upper_bound = 0, 1
    while upper_bound <= most and holds(upper_bound):
        lower_bound, upper_bound = upper_bound, 2 * upper_bound
    upper_bound = min(upper_bound, most + 1)
    while upper_bound - lower_bound > 1:
        middle = (lower_bound + upper_bound) // 2
        lower_bound, upper_bound = (
            (middle, upper_bound) if holds(middle) else (lower_bound, middle)
        )
    return lower_bound


def _find_fit(ask: FitUse, purpose: Purpose) -> Fit:
    tried: list[FitCandidate] = []
    for gpus in _gpu_counts(ask):
        if (fit_candidate := on_gpus(ask, gpus, purpose)) is None:
            continue
        if fit_candidate.fits:
            between = _intermediate_candidate(
                ask, purpose, tried[-1].gpus if tried else 0, gpus
            )
            return Fit(
                purpose=purpose,
                tried=(*tried, *between, fit_candidate)[: len(tried) + 1],
            )
        tried.append(fit_candidate)
    return Fit(
        purpose=purpose,
        tried=tuple(tried),
        nearest=tuple(_suggest_changes(ask, purpose, tried[-1])),
    )


def _intermediate_candidate(
    ask: FitUse, purpose: Purpose, fewer: int, more: int
) -> Iterator[FitCandidate]:
    """Yield the first candidate that fits, in whole nodes, between `fewer` GPUs, which
    are too few, and `more` GPUs, which suffice.

    For serving nothing is yielded, because replicas are divided over powers of 2 only.
    """
    node = ask.device.node_gpus
    if purpose is Purpose.INFERENCE or fewer < node:
        return
    step = node * ceil((more - fewer) / BETWEEN / node)
    for gpus in range(fewer + step, more, step):
        fit_candidate = on_gpus(ask, gpus, purpose)
        if fit_candidate is not None and fit_candidate.fits:
            yield fit_candidate
            return


def _gpu_counts(ask: FitUse) -> list[int]:
    """Return the numbers of GPUs to try: doubled from 1, and the limit itself."""
    max_gpus = ask.gpus or MOST_GPUS
    counts = [
        2**power for power in range(max_gpus.bit_length()) if 2**power <= max_gpus
    ]
    return counts if max_gpus in counts else [*counts, max_gpus]


def _suggest_changes(
    ask: FitUse, purpose: Purpose, last: FitCandidate
) -> Iterator[str]:
    """Yield changes with which the model would fit: more GPUs, fewer bytes per weight,
    a shorter context, a smaller batch. If none of them suffices, yield the changes that
    suffice on the highest number of GPUs that is tried."""
    wider = _find_fit(replace(ask, gpus=None), purpose) if ask.gpus else None
    if wider and wider.gpus:
        yield f"{_format_gpu_count(wider.gpus)} ({wider.best.layout})"
    lesser = list(_reduced_alternatives(ask, purpose, last.gpus))
    yield from lesser
    if wider and not wider.gpus and not lesser:
        yield from wider.nearest


def _reduced_alternatives(ask: FitUse, purpose: Purpose, gpus: int) -> Iterator[str]:
    """Yield alternatives that fit on `gpus` GPUs: smaller weights, shorter context,
    smaller batch."""
    eight = Precision.FP8 if Precision.FP8 in ask.device.flops else Precision.INT8
    for precision in (eight, Precision.INT4):
        frozen = purpose in (Purpose.INFERENCE, Purpose.LORA)
        fewer_bytes = frozen and precision.bytes < ask.precision.bytes
        if fewer_bytes and _fits_on_gpus(
            replace(ask, precision=precision), purpose, gpus
        ):
            yield f"weights in {precision} on {_format_gpu_count(gpus)}"
    shorter = _largest_that_holds(
        lambda size: _fits_on_gpus(replace(ask, context=size), purpose, gpus),
        ask.context,
    )
    if shorter:
        yield f"a context of {shorter:,} tokens on {_format_gpu_count(gpus)}"
    if purpose is Purpose.INFERENCE and (fewer := largest_batch(ask, gpus)):
        yield f"{fewer:,} sequences at once on {_format_gpu_count(gpus)}"


def _format_gpu_count(count: int) -> str:
    return counted(count, "GPU")


def on_gpus(
    ask: FitUse, gpus: int, purpose: Purpose = Purpose.INFERENCE
) -> FitCandidate | None:
    """Return the first layout on `gpus` GPUs that fits. If none fits, return the one
    that needs least memory; None if that number of GPUs allows no layout."""
    smallest_candidate: FitCandidate | None = None
    for layout, memory_parts in _OPTIONS[purpose](ask, gpus):
        fit_candidate = FitCandidate(
            gpus=gpus, layout=layout, parts=memory_parts, usable=ask.usable_bytes
        )
        if fit_candidate.fits:
            return fit_candidate
        if (
            smallest_candidate is None
            or fit_candidate.needed < smallest_candidate.needed
        ):
            smallest_candidate = fit_candidate
    return smallest_candidate


Option = tuple[str, Mapping[str, float]]


def _tensor_parallel_sizes(ask: FitUse, gpus: int) -> Iterator[int]:
    """Yield the tensor-parallel sizes, largest first: numbers of GPUs that divide the
    layer's heads and are within a node."""
    node = max(ask.device.node_gpus, min(ask.device.domain_gpus, WIDEST))
    for width in range(min(gpus, node, WIDEST), 0, -1):
        if gpus % width == 0 and ask.model.heads % width == 0:
            yield width


def _serving_options(ask: FitUse, gpus: int) -> Iterator[Option]:
    for tensor in _tensor_parallel_sizes(ask, gpus):
        pipeline = gpus // tensor
        if pipeline <= ask.model.layers:
            serving = ServingReplica(
                model=ask.model,
                context=ask.context,
                batch=ask.batch,
                tensor=tensor,
                pipeline=pipeline,
                weight_bytes=ask.precision.bytes,
                kv_bytes=ask.kv_precision.bytes,
            )
            memory = serving_memory(serving, architecture=ask.device.architecture)
            yield in_short(TrainLayout(tensor=tensor, pipeline=pipeline)), memory.parts


def _sharded_layouts(gpus: int) -> Iterator[TrainLayout]:
    """Yield layouts with all states sharded over all GPUs and full recomputation. A
    long sequence may also be divided over 2 to 16 of the GPUs."""
    for context in (1, 2, 4, 8, 16):
        if gpus % context == 0:
            yield TrainLayout(
                data=gpus // context,
                context=context,
                shard=Shard.PARAMETERS if gpus > 1 else Shard.NONE,
                recompute=Recompute.FULL,
            )


def _lora_options(ask: FitUse, gpus: int) -> Iterator[Option]:
    """Yield each layout for LoRA with its memory. The first ones shard all states; the
    others divide layers as in pre-training, if a single layer is too large."""
    state = BytesPerParameter(weight=ask.precision.bytes)
    for layout in (*_sharded_layouts(gpus), *_partitioned_layouts(ask, gpus)):
        step = _build_train_step(ask, layout, state)
        memory = adapter_memory(
            step, layout, rank=ask.rank, architecture=ask.device.architecture
        )
        yield in_short(layout), _device_parts(memory, gpus)


def _fine_tuning_options(ask: FitUse, gpus: int) -> Iterator[Option]:
    """Yield each layout for fine-tuning with its memory. The first ones shard all
    states; the others are those of pre-training, if a single layer is too large."""
    for layout in _sharded_layouts(gpus):
        yield in_short(layout), _training_memory_parts(ask, layout, FINE_TUNED)
    yield from _pretraining(ask, gpus)


def _pretraining(ask: FitUse, gpus: int) -> Iterator[Option]:
    """Yield each layout for pre-training with its memory: first Megatron-LM's layouts,
    then those with all states sharded (FSDP)."""
    for layout in (*_partitioned_layouts(ask, gpus), *_sharded_layouts(gpus)):
        yield in_short(layout), _training_memory_parts(ask, layout, BytesPerParameter())


def _partitioned_layouts(ask: FitUse, gpus: int) -> Iterator[TrainLayout]:
    """Yield the parallel layouts, first without and then with recomputation. Each time,
    the layouts with the fewest divisions come first."""
    for recompute in (Recompute.NONE, Recompute.FULL):
        for layout in sorted(_parallel_grids(ask, gpus), key=_partition_sort_key):
            yield replace(layout, recompute=recompute)


def _partition_sort_key(layout: TrainLayout) -> tuple[int, int, int]:
    return (
        layout.pipeline * layout.tensor * layout.context,
        layout.context,
        layout.pipeline,
    )


def _parallel_grids(ask: FitUse, gpus: int) -> Iterator[TrainLayout]:
    for tensor in _tensor_parallel_sizes(ask, gpus):
        for pipeline in (1, 2, 4, 8, 16, 32, 64):
            for context in (1, 2, 4, 8, 16):
                data, rest = divmod(gpus, tensor * pipeline * context)
                if rest or not data or ask.model.layers < pipeline:
                    continue
                experts = ask.model.experts
                yield TrainLayout(
                    data=data,
                    tensor=tensor,
                    pipeline=pipeline,
                    context=context,
                    expert=gcd(data * context * tensor, experts.count)
                    if experts
                    else 1,
                    shard=Shard.OPTIMIZER,
                    sequence_parallel=tensor > 1,
                )


def _training_memory_parts(
    ask: FitUse, layout: TrainLayout, state: BytesPerParameter
) -> Mapping[str, float]:
    step = _build_train_step(ask, layout, state)
    memory = training_memory(step, layout, architecture=ask.device.architecture)
    return _device_parts(memory, layout.gpus)


def _build_train_step(
    ask: FitUse, layout: TrainLayout, state: BytesPerParameter
) -> TrainStep:
    eight = ask.trained is Precision.FP8
    return TrainStep(
        model=ask.model,
        sequence=ask.context,
        global_batch=layout.data * PASSES * layout.pipeline,
        precision=Precision.FP8 if eight else Precision.BF16,
        state=state,
    )


def _device_parts(memory: TrainMemory, gpus: int) -> dict[str, float]:
    """Return the memory by use, including memory outside the allocator.

    A single GPU has no memory for collectives.
    """
    return {
        **memory.parts,
        "allocator": memory.reserved - memory.allocated_peak,
        "context": memory.over.context,
        "collectives": memory.over.collectives if gpus > 1 else 0.0,
    }


_OPTIONS: Final[Mapping[Purpose, Callable[[FitUse, int], Iterator[Option]]]] = {
    Purpose.INFERENCE: _serving_options,
    Purpose.LORA: _lora_options,
    Purpose.FULL: _fine_tuning_options,
    Purpose.PRETRAINING: _pretraining,
}
