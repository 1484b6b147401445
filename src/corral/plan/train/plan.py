"""Plan of a training run: its best layouts, why others are refused, and changes that
would make the run faster."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from corral.catalog.devices import Device
from corral.catalog.precisions import Precision
from corral.perf.attention import pair_numbers
from corral.perf.layout import Recompute, Shard, TrainLayout, TrainStep
from corral.perf.memory import TrainMemory
from corral.perf.software import software
from corral.perf.topology import Wires
from corral.perf.train_step_time import StepTime, step_time
from corral.plan.train.given_sizes import refuse_impossible, refused
from corral.plan.train.layouts import RefusedLayouts, TrainAsk, Turned, layouts

KEPT: Final = 20  # layouts that are kept, quickest first
TIE: Final = 0.03  # layouts within this share count as equal, and the simplest is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutCandidate:
    """A layout that fits, with its time per step and the memory of its fullest GPU."""

    layout: TrainLayout
    time: StepTime
    memory: TrainMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change that makes the run faster. `gain`: the factor of tokens per second over
    the best layout."""

    change: str
    gain: float
    layout: TrainLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Result of the search for layouts. Of the `considered` layouts, `timed` got a
    predicted time and the others were refused. `best` are the fastest. `chosen` is the
    simplest of those about as fast as the fastest."""

    ask: TrainAsk
    chosen: LayoutCandidate
    best: tuple[LayoutCandidate, ...]
    turned: tuple[Turned, ...]
    considered: int
    timed: int
    levers: tuple[Lever, ...] = ()

    @property
    def seconds(self) -> float:
        """Return the time of the whole run, without failures and checkpoints."""
        return self.chosen.time.seconds * self.ask.tokens / self.ask.step.tokens

    @property
    def tokens_per_s(self) -> float:
        return self.ask.step.tokens / self.chosen.time.seconds

    @property
    def mfu(self) -> float:
        """Return the model FLOPs utilisation: the model's FLOPs over the dense peak.
        The model's FLOPs are 6 for each parameter that a token passes, and attention
        with its mask; recomputation does not count (arXiv:2204.02311, appendix B)."""
        return model_flops(self.ask.step) / (
            self.chosen.time.seconds
            * self.ask.gpus
            * _peak_flops(self.ask.device, self.ask.precision)
        )


def model_flops(step: TrainStep) -> float:
    """Return the FLOPs of one step forward and backward. A token attends to half of its
    sequence on average."""
    model = step.model
    products = model.active_parameters - model.embedding_parameters
    products += model.embedding_parameters if model.is_tied else 0
    square = model.layers * model.heads * pair_numbers(model) * step.sequence / 2
    trained = 3 if step.state.gradient else 2
    return (2 * trained * products + 2 * 3 * square) * step.tokens


def _peak_flops(used: Device, precision: Precision) -> float:
    return (
        used.flops.get(precision)
        or used.flops.get(Precision.BF16)
        or max(used.flops.values())
    )


def search(ask: TrainAsk) -> Trained:
    """Return the layouts of a run with their predicted times, fastest first.

    Raises: NoLayout if the requested sizes are impossible, or no layout fits.
    """
    refuse_impossible(ask)
    tally = RefusedLayouts()
    layout_candidates = _time_layouts(ask, tally)
    if not layout_candidates:
        raise refused(ask, tally)
    done = Trained(
        ask=ask,
        chosen=_choose_simplest(layout_candidates),
        best=tuple(layout_candidates[:KEPT]),
        turned=tally.turned(),
        considered=len(layout_candidates) + tally.count,
        timed=len(layout_candidates),
    )
    return replace(done, levers=tuple(_evaluate_levers(done)))


def _time_layouts(ask: TrainAsk, tally: RefusedLayouts) -> list[LayoutCandidate]:
    step, wires, train_software = ask.step, ask.wires, software(ask.by)
    layout_candidates: list[LayoutCandidate] = []
    for layout, memory in layouts(ask, step, tally):
        time = step_time(step, layout, ask.device, wires, by=train_software)
        layout_candidates.append(
            LayoutCandidate(layout=layout, time=time, memory=memory)
        )
    return sorted(
        layout_candidates, key=lambda one: (one.time.seconds, one.memory.device)
    )


def _choose_simplest(found: list[LayoutCandidate]) -> LayoutCandidate:
    """Return the candidate with the fewest kinds of parallelism among those within
    `TIE` of the fastest."""
    near = [
        layout_candidate
        for layout_candidate in found
        if layout_candidate.time.seconds <= (1 + TIE) * found[0].time.seconds
    ]
    return min(near, key=lambda one: (_count_divisions(one.layout), one.time.seconds))


def _count_divisions(layout: TrainLayout) -> int:
    cuts = (
        layout.tensor,
        layout.pipeline,
        layout.context,
        layout.expert,
        layout.interleave,
    )
    sharded = layout.shard is Shard.PARAMETERS
    return (
        sum(cut > 1 for cut in cuts)
        + sharded
        + (layout.recompute is not Recompute.NONE)
    )


def _evaluate_levers(done: Trained) -> Iterator[Lever]:
    """Yield the gain of each change by itself, such as twice the bandwidth of a link,
    for the best layouts found."""
    ask = done.ask
    wires = ask.wires
    faster = replace(wires.fabric, bytes_per_s=2 * wires.fabric.bytes_per_s)
    nearer = replace(wires.scale_up, bytes_per_s=2 * wires.scale_up.bytes_per_s)
    if ask.gpus > wires.domain_gpus:
        yield _evaluate_change(
            done,
            f"twice the bandwidth of {wires.fabric.title}",
            replace(wires, fabric=faster),
        )
    if ask.gpus > 1:
        yield _evaluate_change(
            done,
            f"twice the bandwidth of {wires.scale_up.title}",
            replace(wires, scale_up=nearer),
        )
    twice = replace(ask.step, global_batch=2 * ask.step.global_batch)
    yield _evaluate_change(
        done, f"a batch of {twice.global_batch:,} sequences", wires, step=twice
    )


def _evaluate_change(
    done: Trained, change: str, wires: Wires, *, step: TrainStep | None = None
) -> Lever:
    ask = done.ask
    train_step = step or ask.step
    train_software = software(ask.by)
    times = [
        (
            step_time(
                train_step,
                layout_candidate.layout,
                ask.device,
                wires,
                by=train_software,
            ).seconds,
            layout_candidate.layout,
        )
        for layout_candidate in (done.chosen, *done.best)
    ]
    seconds, layout = min(times, key=lambda pair: pair[0])
    rate = train_step.tokens / seconds
    return Lever(change=change, gain=rate / done.tokens_per_s, layout=layout)


def with_device(done: Trained, other: Device) -> Lever | None:
    """Return the gain of the same run on as many GPUs of another type, in the best
    layout there; None if no layout fits."""
    layout_candidates = _time_layouts(
        replace(done.ask, device=other, fabric=None), RefusedLayouts()
    )
    if not layout_candidates:
        return None
    chosen = _choose_simplest(layout_candidates)
    return Lever(
        change=other.title,
        gain=done.chosen.time.seconds / chosen.time.seconds,
        layout=chosen.layout,
    )
