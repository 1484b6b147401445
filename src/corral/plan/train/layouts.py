"""Search for the layouts of a training run whose time is worth predicting: they divide
evenly and fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd, isqrt, log
from typing import Final

from corral.catalog.devices import Device
from corral.catalog.links import LinkKind
from corral.catalog.models import Model
from corral.catalog.overheads import overhead
from corral.catalog.precisions import Precision
from corral.perf.adapters import adapter_memory
from corral.perf.layout import (
    BytesPerParameter,
    Recompute,
    Shard,
    TrainLayout,
    TrainStep,
)
from corral.perf.memory import TrainMemory, training_memory
from corral.perf.software import DEFAULT, EAGER, EAGER_LOGIT_BYTES
from corral.perf.topology import Wires
from corral.plan.train.layout_text import words

FROZEN: Final = BytesPerParameter(gradient=0.0, optimizer=0.0)
# default tokens of a step: about those of GPT-3, Llama 2
BATCH_TOKENS: Final = 4_194_304
# or more, so that a GPU has this much: Llama 3 405B, arXiv:2407.21783
GPU_SEQUENCES: Final = 1 / 8
# tokens of a sequence that one context-parallel GPU keeps at the least
SHORTEST: Final = 1024
MICRO_BATCHES: Final = (1, 2, 4, 8)
# GPUs over which experts are spread, besides all of a stage
SPREADS: Final = (8, 32, 64)
LEAST_UNEVEN: Final = 2  # layers of a stage where stages are not alike
UNASKED: Final = "does not have the requested sizes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainAsk:
    """Request for layouts of a training run.

    `tokens` is the total of the run, in sequences of `sequence` tokens. `global_batch`:
    sequences per step (0: the usual number). `frozen` selects LoRA of rank `rank`;
    `frozen_bytes` are the bytes of each frozen weight (0: as the products). `by` is the
    training library. `fabric` joins domains; None is the GPU's usual one. `tensor`,
    `pipeline` and `context` restrict layouts to that size; 0 leaves it to the search.
    `may_shard` allows ZeRO-3 (FSDP).
    """

    model: Model
    device: Device
    gpus: int
    tokens: float = 1e12
    sequence: int = 4_096
    global_batch: int = 0
    precision: Precision = Precision.BF16
    frozen: bool = False
    frozen_bytes: float = 0.0
    rank: int = 16
    by: str = DEFAULT
    fabric: LinkKind | None = None
    tensor: int = 0
    pipeline: int = 0
    context: int = 0
    may_shard: bool = True

    def __post_init__(self) -> None:
        if min(self.gpus, self.sequence, self.rank) < 1 or self.tokens <= 0:
            raise ValueError("GPUs, sequence, rank and tokens must be at least 1 each")

    @property
    def step(self) -> TrainStep:
        kept_bytes = self.frozen_bytes or self.precision.bytes
        step = TrainStep(
            model=self.model,
            sequence=self.sequence,
            global_batch=self.global_batch
            or usual_batch(self.gpus, self.sequence, self.tokens),
            precision=self.precision,
            state=replace(FROZEN, weight=kept_bytes)
            if self.frozen
            else BytesPerParameter(),
        )
        if self.by not in EAGER:
            return step
        return replace(
            step, fused=False, logit_bytes=EAGER_LOGIT_BYTES, vocab_multiple=1
        )

    @property
    def wires(self) -> Wires:
        return Wires(
            scale_up=self.device.scale_up,
            domain_gpus=min(self.device.domain_gpus, max(self.gpus, 1)),
            fabric=self.fabric or self.device.fabric,
        )

    @property
    def usable_bytes(self) -> float:
        return self.device.memory_bytes * (
            1 - overhead(self.device.architecture).kept_free
        )


@lru_cache(maxsize=256)
def usual_batch(gpus: int, sequence: int, tokens: float) -> int:
    """Return the default number of sequences of a step, at most those in all `tokens`.

    All GPUs, or an equal part of them, get the same number of sequences. The candidates
    are the multiples and the divisors of the number of GPUs. The one nearest to the
    usual number is chosen.
    """
    usual = max(BATCH_TOKENS / sequence, GPU_SEQUENCES * gpus)
    usual = max(min(usual, tokens / sequence), 1.0)
    if usual >= gpus:
        return round(usual / gpus) * gpus
    return min(divisors(gpus), key=lambda batch: abs(log(batch / usual)))


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors in rising order."""
    small_divisors = [
        divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0
    ]
    large_divisors = [
        number // divisor
        for divisor in reversed(small_divisors)
        if divisor * divisor != number
    ]
    return (*small_divisors, *large_divisors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """How many layouts were refused for one reason. `nearest`: what the layout that
    came nearest to fitting lacked."""

    reason: str
    count: int
    nearest: str = ""


def _format_bytes(size_bytes: float) -> str:
    return (
        f"{size_bytes / 1e9:.1f} GB"
        if size_bytes >= 1e8
        else f"{size_bytes / 1e6:.0f} MB"
    )


class RefusedLayouts:
    """Counter of refused layouts, by reason."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._over: tuple[float, TrainLayout] | None = None

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    def down(self, reason: str) -> None:
        self._counts[reason] = self._counts.get(reason, 0) + 1

    def too_large(self, over: float, layout: TrainLayout) -> None:
        self.down("does not fit")
        if self._over is None or over < self._over[0]:
            self._over = (over, layout)

    def why(self) -> str:
        """Return by how much the layout closest to fitting exceeds the memory; "" if no
        layout was refused for memory."""
        if self._over is None:
            return ""
        excess_bytes, layout = self._over
        return f"{words(layout)} needs {_format_bytes(excess_bytes)} per GPU too much"

    def commonest(self) -> str:
        """Return the most common reason why layouts were refused, apart from sizes that
        the request excludes."""
        own_counts = {
            reason: count for reason, count in self._counts.items() if reason != UNASKED
        }
        return max(own_counts, key=lambda reason: own_counts[reason], default=UNASKED)

    def turned(self) -> tuple[Turned, ...]:
        return tuple(
            Turned(
                reason=reason,
                count=count,
                nearest=self.why() if reason == "does not fit" else "",
            )
            for reason, count in sorted(self._counts.items(), key=lambda item: -item[1])
        )


def _estimate_memory(
    ask: TrainAsk, step: TrainStep, layout: TrainLayout
) -> TrainMemory:
    architecture = ask.device.architecture
    if ask.frozen:
        return adapter_memory(step, layout, rank=ask.rank, architecture=architecture)
    return training_memory(step, layout, architecture=architecture)


def grids(ask: TrainAsk) -> Iterator[TrainLayout]:
    """Yield every way to divide the GPUs: data x tensor x pipeline x context is their
    number."""
    for tensor in divisors(ask.gpus):
        for pipeline in divisors(ask.gpus // tensor):
            for context in divisors(ask.gpus // tensor // pipeline):
                yield TrainLayout(
                    data=ask.gpus // tensor // pipeline // context,
                    tensor=tensor,
                    pipeline=pipeline,
                    context=context,
                    sequence_parallel=tensor > 1,
                    shard=Shard.OPTIMIZER
                    if ask.gpus > tensor * pipeline
                    else Shard.NONE,
                )


def _refusal_reason(ask: TrainAsk, step: TrainStep, grid: TrainLayout) -> str | None:
    """Return why a layout is not worth a time prediction, for example because heads do
    not divide evenly; None if it is worth one."""
    model = ask.model
    size_pairs = (
        (ask.tensor, grid.tensor),
        (ask.pipeline, grid.pipeline),
        (ask.context, grid.context),
    )
    if any(request and request != grid_size for request, grid_size in size_pairs):
        return UNASKED
    if model.heads % grid.tensor:
        return f"does not divide {model.heads} heads over its tensor-parallel GPUs"
    if grid.tensor > ask.wires.domain_gpus:
        return f"is tensor-parallel over more than {ask.wires.domain_gpus} GPUs with fast links"
    if grid.pipeline > model.layers:
        return f"has more pipeline stages than {model.layers} layers"
    if model.layers % grid.pipeline and model.layers + 2 < LEAST_UNEVEN * grid.pipeline:
        return f"divides {model.layers} layers into stages of one and of two"
    if grid.context > 1 and ask.sequence // grid.context < SHORTEST:
        return f"divides a sequence into pieces under {SHORTEST:,} tokens"
    if ask.sequence % grid.context:
        return f"does not divide a sequence of {ask.sequence:,} tokens"
    if step.global_batch % grid.data:
        return f"does not divide a batch of {step.global_batch:,} sequences"
    return None


Fitting = tuple[TrainLayout, TrainMemory]


def layouts(ask: TrainAsk, step: TrainStep, tally: RefusedLayouts) -> Iterator[Fitting]:
    """Yield the layouts that fit. Count the refused layouts by reason in `tally`."""
    for grid in grids(ask):
        if reason := _refusal_reason(ask, step, grid):
            tally.down(reason)
            continue
        for shard in _shard_options(ask, grid):
            for expert in _expert_parallel_sizes(ask.model, grid):
                yield from _micro_batch_layouts(
                    ask, step, replace(grid, shard=shard, expert=expert), tally
                )


def _micro_batch_layouts(
    ask: TrainAsk, step: TrainStep, base: TrainLayout, tally: RefusedLayouts
) -> Iterator[Fitting]:
    """Yield the layouts that fit, for each size of the micro batch. Layers are
    recomputed only if the layout does not fit otherwise."""
    for micro in MICRO_BATCHES:
        if step.global_batch % (base.data * micro):
            tally.down("does not divide the batch into whole micro batches")
            continue
        sized = replace(base, micro_batch=micro)
        for pieces in _interleave_options(ask.model, step, sized):
            layout = replace(sized, interleave=pieces)
            memory = _estimate_memory(ask, step, layout)
            if memory.device > ask.usable_bytes:
                layout = replace(layout, recompute=Recompute.FULL)
                memory = _estimate_memory(ask, step, layout)
            if memory.device > ask.usable_bytes:
                tally.too_large(memory.device - ask.usable_bytes, layout)
                continue
            yield layout, memory


def _shard_options(ask: TrainAsk, grid: TrainLayout) -> tuple[Shard, ...]:
    if grid.data * grid.context == 1:
        return (Shard.NONE,)
    # a pipeline would gather for each micro batch
    if grid.pipeline > 1 or not ask.may_shard:
        return (Shard.OPTIMIZER,)
    return (Shard.OPTIMIZER, Shard.PARAMETERS)


def _expert_parallel_sizes(model: Model, grid: TrainLayout) -> tuple[int, ...]:
    """Return the numbers of GPUs of a stage over which experts may be spread: a node, a
    few nodes, or as many GPUs as possible."""
    if model.experts is None:
        return (1,)
    max_expert_gpus = gcd(model.experts.count, grid.data * grid.context * grid.tensor)
    return tuple(
        sorted(
            {
                max_expert_gpus,
                *(gcd(max_expert_gpus, spread_size) for spread_size in SPREADS),
            }
        )
    )


def _interleave_options(
    model: Model, step: TrainStep, layout: TrainLayout
) -> tuple[int, ...]:
    """Return the options for pipeline pieces per stage: 1, a number between, and one
    piece for each layer of a stage. Embedding and output matrix count as a layer each
    if the layers do not divide evenly (perf/sharding.py)."""
    stages = layout.pipeline
    if stages == 1 or step.micro_batches(layout) % stages:
        return (1,)
    slots = model.layers + (2 if model.layers % stages else 0)
    if slots % stages:
        return (1,)
    slots_per_stage = slots // stages
    fewer = max(
        divisor
        for divisor in divisors(slots_per_stage)
        if divisor * divisor <= slots_per_stage
    )
    return tuple(sorted({1, fewer, slots_per_stage}))
