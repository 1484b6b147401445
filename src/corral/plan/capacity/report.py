"""Capacity plans as reports."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from corral.domain.units import counted, duration_text, share_text
from corral.plan.capacity.forecast import DemandForecast
from corral.plan.capacity.plan import MONTH_HOURS, Capacity, SimpleCapacity
from corral.plan.capacity.sizing import Sized
from corral.plan.report import (
    Figure,
    FigureSeries,
    PlannerReport,
    ReportFigure,
    ReportTable,
    TableColumn,
    columns,
)


def simple_report(found: SimpleCapacity) -> PlannerReport:
    need = found.need
    low_text, high_text = (share_text(buffer) for buffer in need.buffers)
    use = max(0.01, found.gpu_hours / (found.high_gpus * MONTH_HOURS))
    gpus = " to ".join(
        f"{gpu_count:,}" for gpu_count in sorted({found.low_gpus, found.high_gpus})
    )
    return PlannerReport(
        title="Capacity",
        verdict=(
            f"{found.gpu_hours:,.0f} GPU-hours a month are needed. With a buffer of {low_text} to "
            f"{high_text}, they are "
            f"{found.low_gpu_hours:,.0f} to {found.high_gpu_hours:,.0f}: {gpus} GPUs around the "
            f"clock. To compare owning and renting: corral plan cost --gpus {found.high_gpus} "
            f"--utilisation {use:.2f}"
        ),
        answers=(
            ReportFigure(name="need", value=found.gpu_hours, unit="GPU h a month"),
            ReportFigure(
                name=f"with a buffer of {low_text}", value=found.low_gpus, unit="GPUs"
            ),
            ReportFigure(
                name=f"with a buffer of {high_text}", value=found.high_gpus, unit="GPUs"
            ),
        ),
        assumed=(
            f"a GPU can be kept busy in {share_text(need.usable)} of 730 hours a month; change it "
            "with --usable",
            f"a node has {counted(need.node_gpus, 'GPU')}; change it with --node-gpus",
        ),
        data=asdict(found),
    )


def report(found: Capacity) -> PlannerReport:
    tables: list[ReportTable] = []
    figures = [_load_duration_figure(found)]
    if found.forecast is not None:
        tables.append(_backtest_table(found.forecast))
        figures.insert(0, _forecast_figure(found.forecast))
    if found.sized is not None:
        tables.append(_cluster_size_table(found.sized))
        figures.append(_wait_time_figure(found.sized))
    return PlannerReport(
        title=f"Capacity for {len(found.request.work.submits):,} jobs",
        verdict=_verdict_text(found),
        answers=tuple(_answer_figures(found)),
        tables=tuple(tables),
        figures=tuple(figures),
        assumed=found.remarks,
        warnings=(found.why_none,) if found.why_none else (),
        data=_capacity_as_dict(found),
    )


def _verdict_text(found: Capacity) -> str:
    sentences = []
    if found.forecast is not None:
        total, days = found.forecast.total, _forecast_days(found.forecast)
        sentences.append(
            f"The next {counted(days, 'day')} will need {total.value:,.0f} GPU-hours "
            f"(80 % interval: {total.low:,.0f} to {total.high:,.0f})."
        )
    if found.sized is not None:
        size, target = found.sized.found, found.sized.target
        sentences.append(
            f"With {counted(size.gpus, 'GPU')} ({counted(size.nodes, 'node')}), "
            f"{share_text(target.share)} of the jobs wait "
            f"no longer than {duration_text(target.seconds)}; the GPUs are then allocated for "
            f"{share_text(size.used)} of the time."
        )
    return (
        " ".join(sentences)
        or f"So far, jobs used {found.gpu_hours_month:,.0f} GPU-hours a month."
    )


def _answer_figures(found: Capacity) -> Iterator[ReportFigure]:
    yield ReportFigure(
        name="demand so far", value=found.gpu_hours_month, unit="GPU h a month"
    )
    if found.forecast is not None:
        demand_forecast = found.forecast
        total, busiest = (
            demand_forecast.total,
            max(demand_forecast.steps, key=lambda step: step.high),
        )
        yield ReportFigure(
            name=f"next {counted(_forecast_days(demand_forecast), 'day')}",
            value=total.value,
            unit="GPU h",
            low=total.low,
            high=total.high,
            note="80 % interval",
        )
        yield ReportFigure(
            name="busiest step ahead",
            value=busiest.value,
            unit="GPUs",
            low=busiest.low,
            high=busiest.high,
            note=f"average over {demand_forecast.step_hours:g} h; 80 % interval",
        )
        best_backtest = demand_forecast.tried[0]
        if best_backtest.held is not None:
            note = (
                f"of {best_backtest.origins} forecasts for the past by "
                f"{best_backtest.method}; the target is 80 %"
            )
            yield ReportFigure(
                name="demand within the interval",
                value=100 * best_backtest.held,
                unit="%",
                note=note,
            )
    if found.sized is not None:
        size = found.sized.found
        note = f"{counted(size.nodes, 'node')} of {found.sized.node_gpus}"
        yield ReportFigure(
            name="GPUs for the wait", value=size.gpus, unit="GPUs", note=note
        )
        if found.request.gpus_now is not None:
            extra_gpus = size.gpus - found.request.gpus_now
            yield ReportFigure(name="GPUs to add", value=extra_gpus, unit="GPUs")


def _forecast_days(made: DemandForecast) -> float:
    return len(made.steps) * made.step_hours / 24


def _backtest_table(made: DemandForecast) -> ReportTable:
    return ReportTable(
        title="Accuracy of such forecasts for the past",
        columns=columns(
            "method",
            "forecasts",
            ("mean error", "GPUs"),
            ("error relative to the seasonal change", "times"),
            ("pinball loss", "GPUs"),
            ("demand within the interval", "%"),
        ),
        rows=tuple(
            (
                method_backtest.method,
                method_backtest.origins,
                method_backtest.mae,
                method_backtest.mase,
                method_backtest.pinball,
                None if method_backtest.held is None else 100 * method_backtest.held,
            )
            for method_backtest in made.tried
        ),
        note="The first method is used. Each forecast uses only data from before it. A season "
        f"is {counted(made.season * made.step_hours / 24, 'day')}.",
    )


def _cluster_size_table(sized: Sized) -> ReportTable:
    return ReportTable(
        title="Waits with more or fewer nodes",
        columns=columns(
            "nodes",
            "GPUs",
            (f"p{100 * sized.target.share:g} wait", "min"),
            ("used", "%"),
        ),
        rows=tuple(
            (
                size_tried.nodes,
                size_tried.gpus,
                size_tried.wait_seconds / 60,
                100 * size_tried.used,
            )
            for size_tried in sized.tried
        ),
        note="The history was replayed through the scheduler."
        + (
            ""
            if sized.is_steady
            else " More nodes do not always mean shorter waits: jobs then "
            "run at other times, and compete with other jobs."
        ),
    )


def _forecast_figure(made: DemandForecast) -> Figure:
    day = made.step_hours / 24
    past = len(made.history)
    return Figure(
        title="Demand so far, and its forecast with the 80 % interval",
        x=TableColumn(name="day"),
        y=TableColumn(name="in demand", unit="GPUs"),
        series=(
            FigureSeries(
                name="so far",
                points=tuple(
                    (step_index * day, load)
                    for step_index, load in enumerate(made.history)
                ),
            ),
            FigureSeries(
                name="ahead",
                points=tuple(
                    ((past + step_index) * day, forecast_errors.value)
                    for step_index, forecast_errors in enumerate(made.steps)
                ),
                low=tuple(step.low for step in made.steps),
                high=tuple(step.high for step in made.steps),
            ),
        ),
    )


def _load_duration_figure(found: Capacity) -> Figure:
    hours, points = 0.0, []
    for gpus, weight in found.demand:
        hours += weight
        points.append((hours, gpus))
    return Figure(
        title="Hours in which at least this number of GPUs was in demand",
        x=TableColumn(name="hours"),
        y=TableColumn(name="in demand", unit="GPUs"),
        series=(FigureSeries(name="in demand", points=tuple(points)),),
    )


def _wait_time_figure(sized: Sized) -> Figure:
    return Figure(
        title="Wait by the size of the cluster",
        x=TableColumn(name="GPUs"),
        y=TableColumn(name=f"p{100 * sized.target.share:g} wait", unit="min"),
        series=(
            FigureSeries(
                name="wait",
                points=tuple(
                    (float(size_tried.gpus), size_tried.wait_seconds / 60)
                    for size_tried in sized.tried
                ),
            ),
            FigureSeries(
                name="target",
                points=tuple(
                    (float(size_tried.gpus), sized.target.seconds / 60)
                    for size_tried in sized.tried
                ),
            ),
        ),
    )


def _capacity_as_dict(found: Capacity) -> dict[str, Any]:
    return {
        "gpu_hours_month": found.gpu_hours_month,
        "forecast": None if found.forecast is None else asdict(found.forecast),
        "why_no_forecast": found.why_none,
        "sized": None if found.sized is None else asdict(found.sized),
        "demand": [list(pair) for pair in found.demand],
    }
