"""Report on a training plan."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from corral.catalog.economics import assumptions
from corral.domain.units import counted, share_text
from corral.perf.train_step_time import StepTime
from corral.plan.cautions import WHOLE, cautions
from corral.plan.report import (
    Cell,
    Figure,
    FigureSeries,
    PlannerReport,
    ReportFigure,
    ReportTable,
    TableColumn,
    columns,
    lasting,
)
from corral.plan.ticks import number_text
from corral.plan.train.error_bands import Bands
from corral.plan.train.layout_text import settings, words
from corral.plan.train.layouts import TrainAsk
from corral.plan.train.plan import TIE, Lever, Trained
from corral.plan.train.published import published, published_cautions, published_table

SHOWN: Final = 8
KINDS: Final[Mapping[str, str]] = {
    "matmul": "matrix products",
    "attention": "attention",
    "elementwise": "norms, activations and the loss",
    "recompute": "recomputation of layers",
    "host": "waiting for the host",
    "tensor": "tensor-parallel communication",
    "context": "context-parallel communication",
    "expert": "expert-parallel communication",
    "pipeline": "pipeline communication",
    "data": "data-parallel communication",
    "bubble": "pipeline bubble",
    "optimizer": "optimizer",
    "skew": "waiting for the slowest GPU",
}
TOLD: Final = 0.005  # of a step: what waits for less is not named in the verdict
LEAST: Final = 0.0005  # of a step: what takes less is not listed
SOURCES: Final = (
    "step: arXiv:2104.04473, arXiv:2205.05198; sharding: arXiv:1910.02054",
    "kernels, libraries and links: catalog/data/{kernels,sustained,software,transports}.csv",
)


def report(
    found: Trained,
    *,
    price_gpu_hour: float | None = None,
    others: tuple[Lever, ...] = (),
    assumed: tuple[str, ...] = (),
) -> PlannerReport:
    """Return the report of a training plan.

    `price_gpu_hour` is in USD; without it the report has no costs. `others` are the
    same run on other GPUs (plan/train/plan.py, with_device). `assumed` are the
    assumptions of the caller.
    """
    bands = Bands.of(found.ask)
    published_fits = published(found.ask)
    return PlannerReport(
        title=_report_title(found.ask),
        verdict=_verdict_text(found),
        answers=tuple(_answer_figures(found, bands, price_gpu_hour)),
        tables=(
            _layouts_table(found),
            _by_part(found),
            *published_table(found, published_fits),
            _refusals_table(found),
            _levers_table(found, others),
        ),
        figures=(_parts_figure(found),),
        assumed=(*assumed, *_list_assumptions(found)),
        sources=(*SOURCES, *bands.sentences()),
        warnings=tuple(
            f"{caution}."
            for caution in (
                *_list_cautions(found),
                *published_cautions(found, published_fits),
            )
        ),
        data=_result_fields(found, others),
    )


def _report_title(ask: TrainAsk) -> str:
    return f"Training {ask.model.name} on {ask.gpus:,} x {ask.device.title}"


def _list_cautions(found: Trained) -> Iterator[str]:
    ask = found.ask
    yield from cautions(ask.model, ask.sequence)
    yield from Bands.of(ask).cautions()
    if ask.tokens < ask.step.tokens:
        yield (
            f"{ask.tokens:,.0f} tokens are less than one step of {ask.step.tokens:,}: set a "
            "smaller --batch"
        )


def _verdict_text(found: Trained) -> str:
    layout, step = found.chosen.layout, found.ask.step
    best_lever = max(found.levers, key=lambda one: one.gain)
    lift = (
        f"{best_lever.change} would make it {share_text(best_lever.gain - 1)} faster"
        if best_lever.gain > 1 + TIE
        else "no change of network or batch alone would make it much faster"
    )
    return (
        f"{words(layout)} ({settings(layout)}): {found.chosen.time.seconds:.2f} s a step of "
        f"{step.tokens:,} tokens, {_duration_text(found.seconds)}, "
        f"{share_text(found.mfu)} of the peak. "
        f"{bottleneck(found.chosen.time)}; {lift}."
    )


def _duration_text(seconds: float) -> str:
    value, unit = lasting(seconds)
    return f"{number_text(value)} {unit}"


def bottleneck(time: StepTime) -> str:
    """Return a text with the share of time that is computation, and the largest other
    part of the step."""
    sorted_parts = sorted(time.parts.items(), key=lambda part: -part[1])
    computing = ("matmul", "attention", "elementwise")
    share = sum(time.parts[name] for name in computing) / time.seconds
    rest = next(
        ((name, size) for name, size in sorted_parts if name not in computing), None
    )
    bottleneck_text = f"{share_text(share)} of a step is computing"
    if rest is None or rest[1] < TOLD * time.seconds:
        return bottleneck_text
    return f"{bottleneck_text}, then {KINDS[rest[0]]} with {share_text(rest[1] / time.seconds)}"


def _answer_figures(
    found: Trained, known: Bands, price: float | None
) -> Iterator[ReportFigure]:
    ask, chosen = found.ask, found.chosen
    band = None if known.step is None else known.step.quoted
    span, unit = lasting(found.seconds)
    hours = found.seconds / 3_600 * ask.gpus
    yield ReportFigure(
        name="layout", value=words(chosen.layout), note=settings(chosen.layout)
    )
    yield ReportFigure(name="step", value=chosen.time.seconds, unit="s", band=band)
    yield ReportFigure(
        name="throughput", value=found.tokens_per_s, unit="tokens/s", band=band
    )
    yield ReportFigure(
        name="MFU",
        value=100 * found.mfu,
        unit="%",
        band=band,
        note="of 6 FLOPs per parameter and token, and causal attention, without recomputation",
    )
    yield ReportFigure(
        name="memory",
        value=chosen.memory.device / 1e9,
        unit="GB a GPU",
        band=None if known.memory is None else known.memory.quoted,
        note=f"of {ask.device.memory_bytes / 1e9:.0f}",
    )
    yield ReportFigure(
        name="time",
        value=span,
        unit=unit,
        band=band,
        note="without failures and saves: corral plan reliability",
    )
    yield ReportFigure(name="GPU-hours", value=hours, unit="h", band=band)
    energy = _megawatt_hours(found)
    is_much = energy >= 1
    yield ReportFigure(
        name="energy",
        value=energy if is_much else 1e3 * energy,
        unit="MWh" if is_much else "kWh",
        band=band,
    )
    if price is not None:
        yield ReportFigure(name="cost", value=hours * price, unit="USD", band=band)


def _megawatt_hours(found: Trained) -> float:
    """Return the energy of the run in MWh: nodes at full power, times the overhead of
    the building."""
    known_assumptions = assumptions()
    watts = (
        found.ask.device.tdp_watts
        * known_assumptions["node_watts"].value
        * known_assumptions["pue"].value
    )
    return found.ask.gpus * watts * found.seconds / 3_600 / 1e6


def _layouts_table(found: Trained) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    chosen = found.chosen
    other_candidates = [
        layout_candidate
        for layout_candidate in found.best
        if layout_candidate is not chosen
    ]
    for layout_candidate in (chosen, *other_candidates[: SHOWN - 1]):
        slower = layout_candidate.time.seconds / found.best[0].time.seconds - 1
        rows.append(
            (
                words(layout_candidate.layout),
                settings(layout_candidate.layout),
                layout_candidate.time.seconds,
                100 * slower,
                layout_candidate.memory.device / 1e9,
                KINDS[
                    max(
                        _noncompute_times(layout_candidate.time).items(),
                        key=lambda part: part[1],
                    )[0]
                ],
            )
        )
    return ReportTable(
        title=f"Best of {counted(found.timed, 'layout')} that fit",
        columns=columns(
            "layout",
            "settings",
            ("step", "s"),
            ("slower", "%"),
            ("memory", "GB"),
            "longest wait",
        ),
        rows=tuple(rows),
        note=f"the first is the simplest of those within {share_text(TIE)} of the fastest",
    )


def _noncompute_times(time: StepTime) -> dict[str, float]:
    computing = ("matmul", "attention", "elementwise")
    return {name: size for name, size in time.parts.items() if name not in computing}


def _by_part(found: Trained) -> ReportTable:
    time = found.chosen.time
    return ReportTable(
        title="Where a step's time goes",
        columns=columns("part", ("time", "s"), ("share", "%")),
        rows=tuple(
            (KINDS[name], size, 100 * size / time.seconds)
            for name, size in sorted(time.parts.items(), key=lambda part: -part[1])
            if size > LEAST * time.seconds
        ),
    )


def _refusals_table(found: Trained) -> ReportTable:
    return ReportTable(
        title=f"Why {found.considered - found.timed:,} of {found.considered:,} layouts are refused",
        columns=columns("a layout that", "layouts", "nearest"),
        rows=tuple(
            (turned.reason, turned.count, turned.nearest) for turned in found.turned
        ),
    )


def _levers_table(found: Trained, others: tuple[Lever, ...]) -> ReportTable:
    return ReportTable(
        title="What would make it faster",
        columns=columns("change", ("tokens a second", "times"), "layout"),
        rows=tuple(
            (lever.change, lever.gain, words(lever.layout))
            for lever in (*found.levers, *others)
        ),
    )


def _parts_figure(found: Trained) -> Figure:
    return Figure(
        title="Time of a step by part",
        x=TableColumn(name="part"),
        y=TableColumn(name="time", unit="s"),
        kind="bars",
        series=tuple(
            FigureSeries(name=KINDS[name], points=((0.0, size),))
            for name, size in found.chosen.time.parts.items()
            if size > 0.002 * found.chosen.time.seconds
        ),
    )


def _list_assumptions(found: Trained) -> Iterator[str]:
    ask, known_assumptions = found.ask, assumptions()
    if not ask.global_batch:
        yield (
            f"the batch has the usual {counted(ask.step.global_batch, 'sequence')}, "
            f"{ask.step.tokens / 1e6:.1f} million tokens; change it with --batch"
        )
    yield f"the library is {ask.by}; change it with --library"
    yield WHOLE
    if ask.gpus > ask.wires.domain_gpus:
        yield (
            f"the network between nodes is {ask.wires.fabric.title}; change it with --fabric"
        )
    for name in ("node_watts", "pue"):
        yield f"{known_assumptions[name].title}: {known_assumptions[name].value:g} times"


def _result_fields(found: Trained, others: tuple[Lever, ...]) -> dict[str, Any]:
    return {
        "chosen": _candidate(found.chosen.layout, found.chosen.time),
        "best": [
            _candidate(layout_candidate.layout, layout_candidate.time)
            for layout_candidate in found.best
        ],
        "considered": found.considered,
        "timed": found.timed,
        "turned": [asdict(turned) for turned in found.turned],
        "seconds": found.seconds,
        "tokens_per_s": found.tokens_per_s,
        "mfu": found.mfu,
        "memory": found.chosen.memory.parts,
        "levers": [
            {"change": lever.change, "gain": lever.gain}
            for lever in (*found.levers, *others)
        ],
    }


def _candidate(layout: Any, time: StepTime) -> dict[str, Any]:
    return {**asdict(layout), "seconds": time.seconds, "parts": time.parts}
