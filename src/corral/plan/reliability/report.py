"""Report on the reliability of a run."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from math import isfinite
from typing import Any, Final

from corral.catalog.failures import seen
from corral.domain.units import counted, share_text
from corral.perf.failures import chance_of_failure, goodput
from corral.plan.reliability.plan import (
    Faster,
    IntervalOutcome,
    Reliability,
    mtbf_seconds,
)
from corral.plan.report import (
    Figure,
    FigureSeries,
    PlannerReport,
    ReportFigure,
    ReportTable,
    TableColumn,
    columns,
)

POINTS: Final = 40
CLUMPS: Final = (
    "Failures are assumed to be independent, at a constant rate. Real ones also come together: "
    "OPT-175B lost 5 hosts at once, and on RSC-1 jobs of 1,024 GPUs failed every 7.9 h, where the "
    "rate of its nodes predicts 28.8 h."
)


def report(found: Reliability) -> PlannerReport:
    run = found.run
    nodes, days = counted(run.nodes, "node"), counted(run.days, "day")
    return PlannerReport(
        title=f"Reliability: {nodes} of {counted(run.each, 'GPU')}, {days}",
        verdict=_verdict_text(found),
        answers=tuple(_answer_figures(found)),
        tables=(
            _intervals(found),
            _recovery_table(found),
            _spare_node_table(found),
            _failing_parts_table(found),
            _observed_rates_table(found),
        ),
        figures=(_by_interval(found), _by_nodes(found)),
        assumed=found.remarks,
        sources=(*found.sources, "times to recover: catalog/data/recovery.csv"),
        warnings=(CLUMPS,),
        data=_reliability_as_dict(found),
    )


def _verdict_text(found: Reliability) -> str:
    run, best_outcome = found.run, found.best
    verdict = (
        f"The run fails every {_format_hours(found.mtbf_hours)}. If it saves every "
        f"{_format_hours(best_outcome.interval_seconds / 3_600)}, "
        f"{share_text(best_outcome.goodput, 1)} of the "
        f"time is useful, and {counted(run.days, 'day')} of work take "
        f"{best_outcome.wall_days:,.1f} days"
    )
    if found.spares:
        verdict += f". Keep {counted(found.spares, 'spare node')} ready"
    saved = {
        name: _saved_gpu_hours(found, faster)
        for name, faster in _half_time_options(found).items()
    }
    best_option = max(saved, key=lambda name: saved[name])
    if saved[best_option] < 1:
        return f"{verdict}."
    return (
        f"{verdict}. The largest gain is {best_option} in half the time: "
        f"{saved[best_option]:,.0f} GPU-hours."
    )


def _half_time_options(found: Reliability) -> dict[str, Faster]:
    pairs = {
        (faster.restart_share, faster.stall_share): faster for faster in found.faster
    }
    return {"restarting": pairs[(0.5, 1.0)], "saving": pairs[(1.0, 0.5)]}


def _saved_gpu_hours(found: Reliability, one: Faster) -> float:
    """Return the GPU-hours that a faster restart or checkpoint saves."""
    return (found.best.wall_days - one.kept.wall_days) * 24 * found.run.held_gpus


def _answer_figures(found: Reliability) -> Iterator[ReportFigure]:
    """Yield the figures of the answer, each with its values at the low and the high
    failure rate."""
    run = found.run
    yield from _failure_figures(found)
    yield from _goodput_figures(found)
    yield from _loss_figures(found)
    yield ReportFigure(
        name="spares",
        value=found.spares if found.spares is not None else f"more than {run.nodes:,}",
        unit="nodes",
        low=found.spares_few,
        high=found.spares_many,
        note=f"so that enough nodes work {100 * run.availability:.6g} % of the time",
    )


def _failure_figures(found: Reliability) -> Iterator[ReportFigure]:
    worst, finest = found.worst, found.finest
    lower_ratio, upper_ratio = found.rate_low / found.rate, found.rate_high / found.rate
    hours = found.mtbf_hours
    yield ReportFigure(
        name="mean time between failures",
        value=hours,
        unit="h",
        low=hours / upper_ratio,
        high=hours / lower_ratio,
    )
    yield ReportFigure(
        name="chance of at least one failure",
        value=100 * found.chance,
        unit="%",
        low=100 * _failure_probability(finest, hours / lower_ratio),
        high=100 * _failure_probability(worst, hours / upper_ratio),
    )
    yield ReportFigure(
        name="failures",
        value=found.failures,
        low=_expected_failures(finest, hours / lower_ratio),
        high=_expected_failures(worst, hours / upper_ratio),
        note="expected over the run",
    )


def _goodput_figures(found: Reliability) -> Iterator[ReportFigure]:
    """Yield the best interval between saves, the useful share of the time with it, and
    the duration."""
    best_outcome, worst, finest = found.best, found.worst, found.finest
    yield ReportFigure(
        name="interval between saves",
        value=best_outcome.interval_seconds / 60,
        unit="min",
        low=worst.interval_seconds / 60,
        high=finest.interval_seconds / 60,
    )
    yield ReportFigure(
        name="goodput",
        value=100 * best_outcome.goodput,
        unit="%",
        low=100 * worst.goodput,
        high=100 * finest.goodput,
    )
    yield ReportFigure(
        name="wall clock",
        value=best_outcome.wall_days,
        unit="d",
        low=finest.wall_days,
        high=_finite_or_none(worst.wall_days),
    )


def _loss_figures(found: Reliability) -> Iterator[ReportFigure]:
    outcomes = (found.best, found.finest, found.worst)
    lost_gpu_hours = [
        _lost_hours_of(found, interval_outcome) for interval_outcome in outcomes
    ]
    usd_per_gpu_hour = found.run.usd_per_gpu_hour
    yield ReportFigure(
        name="lost",
        value=lost_gpu_hours[0],
        unit="GPU h",
        low=lost_gpu_hours[1],
        high=_finite_or_none(lost_gpu_hours[2]),
    )
    if usd_per_gpu_hour is not None:
        usd = [lost_hours * usd_per_gpu_hour for lost_hours in lost_gpu_hours]
        yield ReportFigure(
            name="lost in money",
            value=usd[0],
            unit="USD",
            low=usd[1],
            high=_finite_or_none(usd[2]),
        )


def _lost_hours_of(found: Reliability, kept: IntervalOutcome) -> float:
    """Return the GPU-hours that are lost to saves, restarts and repeated work."""
    return (kept.wall_days - found.run.days) * 24 * found.run.held_gpus


def _expected_failures(kept: IntervalOutcome, mtbf_hours: float) -> float:
    return kept.wall_days * 24 / mtbf_hours


def _failure_probability(kept: IntervalOutcome, mtbf_hours: float) -> float:
    return chance_of_failure(kept.wall_days * 24, mtbf_hours)


def _intervals(found: Reliability) -> ReportTable:
    return ReportTable(
        title="Intervals between saves",
        columns=columns(
            "interval", ("every", "min"), ("goodput", "%"), ("wall clock", "d")
        ),
        rows=tuple(
            (
                interval.name,
                interval.interval_seconds / 60,
                100 * interval.goodput,
                _finite_or_none(interval.wall_days),
            )
            for interval in found.intervals
        ),
        note="Young and Daly are approximations; the exact one has the least expected time.",
    )


def _recovery_table(found: Reliability) -> ReportTable:
    return ReportTable(
        title="Gain of a faster restart or save",
        columns=columns(
            ("restart", "min"),
            ("stall of a save", "s"),
            ("goodput", "%"),
            ("saved", "GPU h"),
        ),
        rows=tuple(
            (
                found.saving.restart_seconds * faster.restart_share / 60,
                found.saving.save_seconds * faster.stall_share,
                100 * faster.kept.goodput,
                _saved_gpu_hours(found, faster),
            )
            for faster in found.faster
        ),
    )


def _spare_node_table(found: Reliability) -> ReportTable:
    return ReportTable(
        title="Spare nodes",
        columns=columns("spares", ("enough nodes work", "% of the time")),
        rows=tuple((spared.spares, 100 * spared.enough) for spared in found.spared),
        note="A run that has too few nodes waits for a repair.",
    )


def _failing_parts_table(found: Reliability) -> ReportTable:
    rows = sorted(found.by_part, key=lambda part: -part[1])
    return ReportTable(
        title="Expected failures by cause",
        columns=columns("what", ("expected", "failures in the run")),
        rows=tuple(rows),
        note="The shares are those of the 419 unexpected interruptions of Llama 3.",
    )


def _observed_rates_table(found: Reliability) -> ReportTable:
    nodes = found.run.nodes
    return ReportTable(
        title="Failure rates of real clusters",
        columns=columns(
            "cluster",
            "GPU",
            ("rate", "per 1,000 node-days"),
            ("this run would fail every", "h"),
        ),
        rows=tuple(
            (
                cluster_failures.title,
                cluster_failures.gpu,
                cluster_failures.rate,
                mtbf_seconds(nodes, cluster_failures.rate) / 3_600,
            )
            for cluster_failures in seen()
        ),
        note="The rates are of nodes with 8 GPUs.",
    )


def _by_interval(found: Reliability) -> Figure:
    middle = found.best.interval_seconds
    places = [middle * 10 ** (2 * step / POINTS - 1) for step in range(POINTS + 1)]

    def kept(rate: float) -> tuple[float, ...]:
        scaled_saving = replace(
            found.saving, mtbf_seconds=mtbf_seconds(found.run.nodes, rate)
        )
        return tuple(100 * goodput(seconds, scaled_saving) for seconds in places)

    usual = kept(found.rate)
    return Figure(
        title="Goodput by the interval between saves, at failure rates of real clusters",
        x=TableColumn(name="interval", unit="min"),
        y=TableColumn(name="goodput", unit="%"),
        x_is_log=True,
        series=(
            FigureSeries(
                name="goodput",
                points=tuple(
                    (seconds / 60, share)
                    for seconds, share in zip(places, usual, strict=True)
                ),
                low=kept(found.rate_high),
                high=kept(found.rate_low),
            ),
        ),
    )


def _by_nodes(found: Reliability) -> Figure:
    max_nodes = max(4 * found.run.nodes, 64)
    sizes = [max_nodes ** (step / POINTS) for step in range(POINTS + 1)]

    def hours(rate: float) -> tuple[float, ...]:
        return tuple(mtbf_seconds(1, rate) / 3_600 / nodes for nodes in sizes)

    usual = hours(found.rate)
    return Figure(
        title="Mean time between failures by the size of a run, at rates of real clusters",
        x=TableColumn(name="nodes"),
        y=TableColumn(name="between failures", unit="h"),
        x_is_log=True,
        y_is_log=True,
        series=(
            FigureSeries(
                name="between failures",
                points=tuple(zip(sizes, usual, strict=True)),
                low=hours(found.rate_high),
                high=hours(found.rate_low),
            ),
        ),
    )


def _format_hours(hours: float) -> str:
    if hours >= 72:
        return f"{hours / 24:.1f} days"
    return f"{hours:.2g} h" if hours >= 1.5 else f"{hours * 60:.0f} min"


def _finite_or_none(days: float) -> float | None:
    """Return the days; None for a run that never ends."""
    return days if isfinite(days) else None


def _reliability_as_dict(found: Reliability) -> dict[str, Any]:
    reliability_dict = asdict(found)
    for interval_row in (
        reliability_dict["best"],
        reliability_dict["worst"],
        reliability_dict["finest"],
        *reliability_dict["intervals"],
    ):
        interval_row["wall_days"] = _finite_or_none(interval_row["wall_days"])
    return reliability_dict | {
        "nodes": found.run.nodes,
        "mtbf_hours": found.mtbf_hours,
        "lost_gpu_hours": found.lost_gpu_hours,
    }
