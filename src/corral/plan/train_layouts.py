"""Which layouts of a training run are worth timing: those that come out even and fit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Final

from corral.catalog.devices import Device
from corral.catalog.links import Link
from corral.catalog.models import Model
from corral.catalog.overheads import overhead
from corral.catalog.precisions import Precision
from corral.perf.adapters import adapter_memory
from corral.perf.layout import Layout, Recompute, Shard, State, Step
from corral.perf.memory import Memory, training_memory
from corral.perf.software import DEFAULT
from corral.perf.wires import Wires

FROZEN: Final = State(gradient=0.0, optimizer=0.0)
BATCH_TOKENS: Final = 4_194_304  # of a step, where nobody says: about what GPT-3 and Llama took
SHORTEST: Final = 1024  # tokens of a sequence that one context-parallel GPU keeps at the least
MICRO_BATCHES: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainAsk:
    """`tokens` in all, in sequences of `sequence`, `global_batch` sequences a step (0: so many as
    come to 4 M tokens). `frozen`: LoRA of rank `rank`. `by`: the library. `fabric`: between
    domains, the GPU's usual one where it is None. `tensor` to `context`: only layouts of that
    size; 0 leaves it to the search. `may_shard`: whether ZeRO-3 (FSDP) is among them.
    """

    model: Model
    device: Device
    gpus: int
    tokens: float = 1e12
    sequence: int = 4_096
    global_batch: int = 0
    precision: Precision = Precision.BF16
    frozen: bool = False
    rank: int = 16
    by: str = DEFAULT
    fabric: Link | None = None
    tensor: int = 0
    pipeline: int = 0
    context: int = 0
    may_shard: bool = True

    def __post_init__(self) -> None:
        if min(self.gpus, self.sequence, self.rank) < 1 or self.tokens <= 0:
            raise ValueError("GPUs, sequence, rank and tokens are at least 1 each")

    @property
    def step(self) -> Step:
        return Step(
            model=self.model,
            sequence=self.sequence,
            global_batch=self.global_batch or self._usual_batch(),
            precision=self.precision,
            state=replace(FROZEN, weight=self.precision.bytes) if self.frozen else State(),
        )

    def _usual_batch(self) -> int:
        """So many sequences that data-parallel GPUs come out even, whatever the layout."""
        return max(round(BATCH_TOKENS / self.sequence / self.gpus), 1) * self.gpus

    @property
    def wires(self) -> Wires:
        return Wires(
            scale_up=self.device.scale_up,
            domain_gpus=min(self.device.domain_gpus, max(self.gpus, 1)),
            fabric=self.fabric or self.device.fabric,
        )

    @property
    def usable_bytes(self) -> float:
        return self.device.memory_bytes * (1 - overhead(self.device.architecture).kept_free)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """Layouts that were turned down for one reason. `nearest`: the least that
    one of them was off."""

    reason: str
    count: int
    nearest: str = ""


class Tally:
    """Why layouts were turned down."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._over: tuple[float, Layout] | None = None

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    def down(self, reason: str) -> None:
        self._counts[reason] = self._counts.get(reason, 0) + 1

    def too_large(self, over: float, layout: Layout) -> None:
        self.down("does not fit")
        if self._over is None or over < self._over[0]:
            self._over = (over, layout)

    def why(self) -> str:
        if self._over is None:
            return ""
        over, layout = self._over
        return f"{words(layout)} is {over / 1e9:.1f} GB a GPU too large"

    def turned(self) -> tuple[Turned, ...]:
        return tuple(
            Turned(
                reason=reason, count=count, nearest=self.why() if reason == "does not fit" else ""
            )
            for reason, count in sorted(self._counts.items(), key=lambda item: -item[1])
        )


def words(layout: Layout) -> str:
    """In the words of the field: TP 4 x PP 2 x DP 8."""
    sizes: Mapping[str, int] = {
        "TP": layout.tensor,
        "PP": layout.pipeline,
        "CP": layout.context,
        "EP": layout.expert,
        "DP": layout.data,
    }
    told = [f"{name} {size}" for name, size in sizes.items() if size > 1]
    return " x ".join(told) or "1 GPU"


def settings(layout: Layout) -> str:
    """What belongs to a layout besides its sizes."""
    told = [f"micro batch {layout.micro_batch}"]
    if layout.interleave > 1:
        told.append(f"{layout.interleave} pieces a stage")
    if layout.data * layout.context > 1:
        told.append("FSDP (ZeRO-3)" if layout.shard is Shard.PARAMETERS else "ZeRO-1")
    if layout.sequence_parallel:
        told.append("sequence parallel")
    if layout.recompute is Recompute.FULL:
        told.append("layers recomputed")
    return ", ".join(told)


def _memory(ask: TrainAsk, step: Step, layout: Layout) -> Memory:
    architecture = ask.device.architecture
    if ask.frozen:
        return adapter_memory(step, layout, rank=ask.rank, architecture=architecture)
    return training_memory(step, layout, architecture=architecture)


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def grids(ask: TrainAsk) -> Iterator[Layout]:
    """Every way to share the GPUs out: data x tensor x pipeline x context is their number."""
    for tensor in _divisors(ask.gpus):
        for pipeline in _divisors(ask.gpus // tensor):
            for context in _divisors(ask.gpus // tensor // pipeline):
                yield Layout(
                    data=ask.gpus // tensor // pipeline // context,
                    tensor=tensor,
                    pipeline=pipeline,
                    context=context,
                    sequence_parallel=tensor > 1,
                    shard=Shard.OPTIMIZER if ask.gpus > tensor * pipeline else Shard.NONE,
                )


def _refusal(ask: TrainAsk, step: Step, grid: Layout) -> str | None:
    """Why a way to share the GPUs out is not worth timing; None where it is."""
    model = ask.model
    asked = ((ask.tensor, grid.tensor), (ask.pipeline, grid.pipeline), (ask.context, grid.context))
    if any(wish and wish != has for wish, has in asked):
        return "is not of the sizes that were asked for"
    if model.heads % grid.tensor:
        return f"does not share out {model.heads} heads over its tensor-parallel GPUs"
    if grid.tensor > ask.wires.domain_gpus:
        return f"is tensor-parallel beyond {ask.wires.domain_gpus} GPUs with fast links"
    if model.layers % grid.pipeline and (model.layers + 2) % grid.pipeline:
        return f"does not share out {model.layers} layers over its pipeline"
    if grid.pipeline > model.layers:
        return f"has more pipeline stages than {model.layers} layers"
    if grid.context > 1 and ask.sequence // grid.context < SHORTEST:
        return f"cuts a sequence in pieces under {SHORTEST:,} tokens"
    if ask.sequence % grid.context:
        return f"does not share out a sequence of {ask.sequence:,} tokens"
    if step.global_batch % grid.data:
        return f"does not share out a batch of {step.global_batch:,} sequences"
    return None


Fitting = tuple[Layout, Memory]


def layouts(ask: TrainAsk, step: Step, tally: Tally) -> Iterator[Fitting]:
    """Those that fit; the others are counted with their reason."""
    for grid in grids(ask):
        if why := _refusal(ask, step, grid):
            tally.down(why)
            continue
        for shard in _shards(ask, grid):
            for expert in _experts(ask.model, grid):
                yield from _sizes(ask, step, replace(grid, shard=shard, expert=expert), tally)


def _sizes(ask: TrainAsk, step: Step, base: Layout, tally: Tally) -> Iterator[Fitting]:
    """By size of the micro batch; layers are recomputed only where it does not fit without."""
    for micro in MICRO_BATCHES:
        if step.global_batch % (base.data * micro):
            tally.down("leaves a part of a micro batch over")
            continue
        sized = replace(base, micro_batch=micro)
        for pieces in _pieces(ask.model, step, sized):
            layout = replace(sized, interleave=pieces)
            memory = _memory(ask, step, layout)
            if memory.device > ask.usable_bytes:
                layout = replace(layout, recompute=Recompute.FULL)
                memory = _memory(ask, step, layout)
            if memory.device > ask.usable_bytes:
                tally.too_large(memory.device - ask.usable_bytes, layout)
                continue
            yield layout, memory


def _shards(ask: TrainAsk, grid: Layout) -> tuple[Shard, ...]:
    if grid.data * grid.context == 1:
        return (Shard.NONE,)
    if grid.pipeline > 1 or not ask.may_shard:  # a pipeline would gather for each micro batch
        return (Shard.OPTIMIZER,)
    return (Shard.OPTIMIZER, Shard.PARAMETERS)


def _experts(model: Model, grid: Layout) -> tuple[int, ...]:
    if model.experts is None:
        return (1,)
    most = gcd(model.experts.count, grid.data * grid.context)
    return tuple(sorted({most, gcd(most, 8), gcd(most, 32)}))


def _pieces(model: Model, step: Step, layout: Layout) -> tuple[int, ...]:
    stages = layout.pipeline
    if stages == 1 or model.layers % stages or step.micro_batches(layout) % stages:
        return (1,)
    most = model.layers // stages
    fewer = max(one for one in _divisors(most) if one * one <= most)
    return tuple(sorted({1, fewer, most}))
