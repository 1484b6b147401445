"""The answer on reliability as a report."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from math import isfinite
from typing import Any, Final

from corral.catalog.failures import seen
from corral.perf.failures import goodput
from corral.plan.reliability import Reliability, mtbf_seconds
from corral.plan.report import Answer, Column, Figure, Report, Series, Table, columns

POINTS: Final = 40
CLUMPS: Final = (
    "Failures are taken to be independent and steady. They come in clumps too: OPT-175B lost 5 "
    "hosts at once, and on RSC-1 jobs of 1,024 GPUs failed every 7.9 h where the rate of its nodes "
    "gives 28.8 h."
)


def report(found: Reliability, *, assumed: tuple[str, ...] = ()) -> Report:
    """`assumed`: what the caller took."""
    run, best = found.run, found.best
    days = f"{run.work_days:g} days of work take {best.wall_days:.1f}"
    return Report(
        title=f"Reliability: {run.nodes:,} nodes of {run.node_gpus} GPUs, {run.work_days:g} days",
        verdict=(
            f"A failure every {_span(found.mtbf_hours)}; saving every "
            f"{_span(best.interval_seconds / 3_600)} keeps {best.goodput:.1%} of the time: {days}."
        ),
        answers=tuple(_answers(found)),
        tables=(_intervals(found), _faster(found), _spares(found), _parts(found), _seen(found)),
        figures=(_by_interval(found), _by_nodes(found)),
        assumed=(*assumed, *found.told),
        sources=(*found.sources, "times to recover: catalog/data/recovery.csv"),
        warnings=(CLUMPS,),
        data=_data(found),
    )


def _answers(found: Reliability) -> Iterator[Answer]:
    run, best = found.run, found.best
    hours = found.mtbf_hours
    least, most = hours * found.rate / found.rate_high, hours * found.rate / found.rate_low
    band = max(most / hours - 1, 1 - least / hours)
    between = f"{_span(least)} to {_span(most)}"
    yield Answer(name="mean time between failures", value=hours, unit="h", band=band, note=between)
    yield Answer(name="chance of at least one failure", value=100 * found.chance, unit="%")
    yield Answer(
        name="failures",
        value=found.failures,
        band=band,
        note="expected over the run",
    )
    yield Answer(
        name="interval between saves",
        value=best.interval_seconds / 60,
        unit="min",
        note=f"{_span(found.worst.interval_seconds / 3_600)} to "
        f"{_span(found.finest.interval_seconds / 3_600)} by the rate",
    )
    spread = max(found.finest.goodput / best.goodput - 1, 1 - found.worst.goodput / best.goodput)
    yield Answer(
        name="goodput",
        value=100 * best.goodput,
        unit="%",
        band=spread,
        note=f"{found.worst.goodput:.1%} to {found.finest.goodput:.1%}",
    )
    yield Answer(name="wall clock", value=best.wall_days, unit="d", band=spread)
    yield Answer(name="lost", value=found.lost_gpu_hours, unit="GPU h", band=band)
    if run.usd_per_gpu_hour is not None:
        lost = found.lost_gpu_hours * run.usd_per_gpu_hour
        yield Answer(name="lost in money", value=lost, unit="USD", band=band)
    yield Answer(
        name="spares",
        value=found.spares if found.spares is not None else f"more than {run.nodes}",
        unit="nodes",
        note=f"so that {run.nodes:,} are up {run.availability:.4g} of the time",
    )


def _intervals(found: Reliability) -> Table:
    return Table(
        title="Intervals between saves",
        columns=columns("interval", ("every", "min"), ("goodput", "%"), ("wall clock", "d")),
        rows=tuple(
            (one.name, one.interval_seconds / 60, 100 * one.goodput, _ends(one.wall_days))
            for one in found.intervals
        ),
        note="Young and Daly are formulas near the exact one, which has the least expected time.",
    )


def _faster(found: Reliability) -> Table:
    run = found.run
    return Table(
        title="What a faster restart or save would buy",
        columns=columns(
            ("restart", "min"), ("stall of a save", "s"), ("goodput", "%"), ("saved", "GPU h")
        ),
        rows=tuple(
            (
                found.saving.restart_seconds * one.restart_share / 60,
                found.saving.save_seconds * one.stall_share,
                100 * one.kept.goodput,
                (found.best.wall_days - one.kept.wall_days) * 24 * run.gpus,
            )
            for one in found.faster
        ),
    )


def _spares(found: Reliability) -> Table:
    return Table(
        title="Spare nodes",
        columns=columns("spares", ("enough nodes are up", "% of the time")),
        rows=tuple((one.spares, 100 * one.enough) for one in found.spared),
        note="A run that has too few nodes waits for a repair.",
    )


def _parts(found: Reliability) -> Table:
    rows = sorted(found.by_part, key=lambda part: -part[1])
    return Table(
        title="What will fail",
        columns=columns("what", ("expected", "failures in the run")),
        rows=tuple(rows),
        note="By the shares of Llama 3's 419 unexpected interruptions.",
    )


def _seen(found: Reliability) -> Table:
    nodes = found.run.nodes
    return Table(
        title="What clusters have seen",
        columns=columns(
            "cluster", "GPU", ("rate", "per 1,000 node-days"), ("here a failure every", "h")
        ),
        rows=tuple(
            (one.title, one.gpu, one.rate, mtbf_seconds(nodes, one.rate) / 3_600) for one in seen()
        ),
        note="Nodes of 8 GPUs.",
    )


def _by_interval(found: Reliability) -> Figure:
    middle = found.best.interval_seconds
    places = [middle * 10 ** (2 * step / POINTS - 1) for step in range(POINTS + 1)]

    def kept(rate: float) -> tuple[float, ...]:
        at = replace(found.saving, mtbf_seconds=mtbf_seconds(found.run.nodes, rate))
        return tuple(100 * goodput(seconds, at) for seconds in places)

    usual = kept(found.rate)
    return Figure(
        title="Goodput by the interval between saves",
        x=Column(name="interval", unit="min"),
        y=Column(name="goodput", unit="%"),
        x_is_log=True,
        series=(
            Series(
                name="goodput",
                points=tuple(
                    (seconds / 60, share) for seconds, share in zip(places, usual, strict=True)
                ),
                low=kept(found.rate_high),
                high=kept(found.rate_low),
            ),
        ),
    )


def _by_nodes(found: Reliability) -> Figure:
    most = max(4 * found.run.nodes, 64)
    sizes = [most ** (step / POINTS) for step in range(POINTS + 1)]

    def hours(rate: float) -> tuple[float, ...]:
        return tuple(mtbf_seconds(1, rate) / 3_600 / nodes for nodes in sizes)

    usual = hours(found.rate)
    return Figure(
        title="Mean time between failures by the size of a run",
        x=Column(name="nodes"),
        y=Column(name="between failures", unit="h"),
        x_is_log=True,
        y_is_log=True,
        series=(
            Series(
                name="between failures",
                points=tuple(zip(sizes, usual, strict=True)),
                low=hours(found.rate_high),
                high=hours(found.rate_low),
            ),
        ),
    )


def _span(hours: float) -> str:
    if hours >= 72:
        return f"{hours / 24:.1f} days"
    return f"{hours:.2g} h" if hours >= 1.5 else f"{hours * 60:.0f} min"


def _ends(days: float) -> float | None:
    """None of what never ends: no number says so."""
    return days if isfinite(days) else None


def _data(found: Reliability) -> dict[str, Any]:
    whole = asdict(found)
    for kept in (whole["best"], whole["worst"], whole["finest"], *whole["intervals"]):
        kept["wall_days"] = _ends(kept["wall_days"])
    return whole | {
        "mtbf_hours": found.mtbf_hours,
        "lost_gpu_hours": found.lost_gpu_hours,
    }
