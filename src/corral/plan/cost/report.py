"""The answer on cost as a report."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from corral.catalog.devices import device
from corral.domain.units import counted, share_text
from corral.plan.cost.advice import advice, usd_text
from corral.plan.cost.bills import MONTH_HOURS, RENTS
from corral.plan.cost.budget import AffordableGpus
from corral.plan.cost.hybrid import Hybrid
from corral.plan.cost.plan import OWN, Costs, OwnOrRent
from corral.plan.cost.terms_report import clouds_table, terms_table, year_table
from corral.plan.report import (
    Figure,
    FigureSeries,
    PlannerReport,
    ReportFigure,
    ReportTable,
    TableColumn,
    columns,
)

OFFERS: Final = (
    "List prices change weekly, and large buyers pay less. Use your own offers with --prices "
    "FILE; for its format, run: corral plan prices --help."
)
# assumptions in the figure, as many as its words have room for; the table has all
SHOWN: Final = 6


def report(found: Costs) -> PlannerReport:
    request = found.request
    tables = [_own_or_rent_table(found), terms_table(found.terms, OWN)]
    if found.clouds:
        tables.append(clouds_table(found.clouds))
    tables += [year_table(found.year), _bill_table(found)]
    figures = [_use_figure(found), _swing_figure(found)]
    if found.hybrid is not None:
        tables.append(_hybrid_table(found.hybrid))
        figures.append(_hybrid_figure(found.hybrid))
    return PlannerReport(
        title=f"Cost of {request.gpus:,} x {device(request.gpu).title} for "
        f"{counted(request.years, 'year')}",
        verdict=advice(found),
        answers=tuple(_answer_figures(found)),
        tables=(*tables, _sensitivity_table(found)),
        figures=tuple(figures),
        assumed=(
            f"the GPUs are used for {share_text(request.utilisation)} of all hours; change it with "
            "--utilisation",
            *found.remarks,
        ),
        sources=tuple(
            dict.fromkeys(assumption.source for assumption in found.known.values())
        ),
        warnings=(*found.cautions, OFFERS),
        data=_costs_as_dict(found),
    )


def _answer_figures(found: Costs) -> Iterator[ReportFigure]:
    for option in found.ways:
        lower_bound, upper_bound = (
            (None, None) if option.band is None else (option.band.low, option.band.high)
        )
        name = f"{option.name}, a used GPU-hour"
        yield ReportFigure(
            name=name,
            value=option.per_hour,
            unit="USD",
            band=_relative_band(option),
            low=lower_bound,
            high=upper_bound,
        )
    rent = found.way("on demand")
    spread = found.even_use_band
    yield ReportFigure(
        name="break-even use",
        value="never" if rent.even_use is None else 100 * rent.even_use,
        unit="" if rent.even_use is None else "% of the hours",
        note=""
        if spread is None
        else f"{_break_even_text(spread.low)} to {_break_even_text(spread.high)}",
    )
    yield ReportFigure(
        name="break-even month",
        value=rent.even_month if rent.even_month is not None else "not in these years",
        note="counting payments only, compared with renting on demand",
    )
    yield ReportFigure(
        name="cloud bill from which owning pays",
        value=found.even_bill,
        unit="USD a month",
        note=f"for the work of {counted(found.request.gpus, 'GPU')}, with storage and staff",
    )
    saved = found.saving_band
    yield ReportFigure(
        name="owning saves",
        value=found.saving,
        unit="USD",
        low=saved.low,
        high=saved.high,
        note="compared with renting on demand",
    )
    if found.bought is not None:
        yield from _of_budget(found, found.bought)
    if found.hybrid is not None:
        optimal_mix = found.hybrid.best
        yield ReportFigure(
            name="GPUs to own",
            value=optimal_mix.owned,
            note=f"{share_text(optimal_mix.owned_share)} of the GPU-hours; the rest is "
            "rented on demand",
        )
        yield ReportFigure(name="cost of that mix", value=optimal_mix.usd, unit="USD")


def _of_budget(found: Costs, own: AffordableGpus) -> Iterator[ReportFigure]:
    request, node = found.request, counted(own.node_gpus, "GPU")
    years, use = counted(request.years, "year"), share_text(request.utilisation)
    yield ReportFigure(name="budget", value=request.budget_usd, unit="USD")
    yield ReportFigure(
        name="GPUs that it buys",
        value=own.by_capital,
        note=f"the rest of the budget runs them for {counted(own.months, 'month')}"
        if own.by_capital
        else f"{node} cost {usd_text(own.node_once)} at the start",
    )
    yield ReportFigure(
        name="GPUs that it buys and runs",
        value=own.by_whole_cost,
        note=f"for {years}"
        if own.by_whole_cost
        else f"{node} cost {usd_text(own.node_usd)} in {years}, "
        f"{usd_text(own.node_usd - (request.budget_usd or 0.0))} more than the budget",
    )
    yield ReportFigure(
        name="months that it rents",
        value=own.rented_months,
        unit="months",
        note=f"{counted(request.gpus, 'GPU')} on demand at {use} use, with storage and staff",
    )
    if own.kept_gpus >= 1:
        yield ReportFigure(
            name="GPUs that it rents",
            value=round(own.kept_gpus, 1),
            note=f"on demand at {use} use for {years}, with storage and staff; on spot "
            f"{own.kept_on_spot:,.1f}",
        )
    yield ReportFigure(
        name="GPU-hours that it rents",
        value=own.rented_hours,
        unit="GPU h",
        note=f"without storage and staff: {_rent_only_text(own, years)}",
    )


def _rent_only_text(own: AffordableGpus, years: str) -> str:
    if own.rented_gpus >= 1:
        return f"{own.rented_gpus:,.1f} GPUs around the clock for {years}"
    return f"1 GPU around the clock for {own.rented_hours / MONTH_HOURS:,.0f} months"


def _own_or_rent_table(found: Costs) -> ReportTable:
    return ReportTable(
        title="Own or rent",
        columns=columns(
            "way",
            ("at the start", "USD"),
            ("a month", "USD"),
            ("present value in all", "USD"),
            ("a used GPU-hour", "USD"),
            ("owning is cheaper from", "% of the hours"),
            "and from month",
            ("owning is cheaper in", "% of random draws"),
        ),
        rows=tuple(
            (
                option.name,
                option.bill.once,
                sum(line.monthly for line in option.bill.lines),
                option.bill.usd,
                option.per_hour,
                None if option.even_use is None else 100 * option.even_use,
                option.even_month,
                None if option.own_wins is None else 100 * option.own_wins,
            )
            for option in found.ways
        ),
        note="Rents by the hour are those of the first month; later they fall.",
    )


def _bill_table(found: Costs) -> ReportTable:
    rows = [
        (option.name, line.name, line.once or None, line.monthly or None, line.usd)
        for option in (found.way(OWN), found.way("on demand"))
        for line in option.bill.lines
        if line.usd
    ]
    return ReportTable(
        title="The bills, line by line",
        columns=columns(
            "way",
            "what",
            ("at the start", "USD"),
            ("a month", "USD"),
            ("present value", "USD"),
        ),
        rows=tuple(rows),
    )


def _hybrid_table(found: Hybrid) -> ReportTable:
    labelled_mixes = (
        (found.best, "best"),
        (found.all_own, "all own"),
        (found.all_rent, "all rented"),
    )
    return ReportTable(
        title="Own a base, rent the peaks",
        columns=columns(
            "mix", "own GPUs", ("of the GPU-hours", "%"), ("present value", "USD")
        ),
        rows=tuple(
            (name, mix.owned, 100 * mix.owned_share, mix.usd)
            for mix, name in labelled_mixes
        ),
    )


def _hybrid_figure(found: Hybrid) -> Figure:
    points = tuple((float(mix.owned), mix.usd) for mix in found.tried)
    return Figure(
        title="Cost by the number of owned GPUs",
        x=TableColumn(name="own GPUs"),
        y=TableColumn(name="present value", unit="USD"),
        series=(FigureSeries(name=f"the rest {found.kind}", points=points),),
    )


def _use_figure(found: Costs) -> Figure:
    return Figure(
        title="Cost by use",
        x=TableColumn(name="used", unit="% of the hours"),
        y=TableColumn(name="present value", unit="USD"),
        series=tuple(
            FigureSeries(
                name=name,
                points=tuple(
                    (100 * use_share, usd[series_index])
                    for use_share, usd in found.by_use
                ),
            )
            for series_index, name in enumerate((OWN, *RENTS))
        ),
    )


def _sensitivity_table(found: Costs) -> ReportTable:
    return ReportTable(
        title="Sensitivity: what owning saves compared with renting on demand",
        columns=columns(
            "assumption",
            "unit",
            "low",
            "high",
            ("saved at the low", "USD"),
            ("saved at the high", "USD"),
        ),
        rows=tuple(
            (
                swing.name,
                found.known[swing.name].unit,
                found.known[swing.name].low,
                found.known[swing.name].high,
                swing.low,
                swing.high,
            )
            for swing in found.swings
        ),
        note="Each row changes one assumption; the error bands above change all of them at once.",
    )


def _swing_figure(found: Costs) -> Figure:
    """Return a tornado figure: what owning saves, from each assumption's low to its
    high."""
    return Figure(
        title="Sensitivity: what owning saves, from each assumption's low to its high",
        x=TableColumn(name="assumption"),
        y=TableColumn(name="owning saves", unit="USD"),
        series=tuple(
            FigureSeries(name=swing.name, points=((0.0, swing.low), (0.0, swing.high)))
            for swing in found.swings[:SHOWN]
        ),
        kind="bars",
    )


def _relative_band(way: OwnOrRent) -> float | None:
    if way.band is None or not way.per_hour:
        return None
    return max(way.band.high / way.per_hour - 1, 1 - way.band.low / way.per_hour)


def _break_even_text(used: float) -> str:
    return "never" if used > 1 else share_text(used)


def _costs_as_dict(found: Costs) -> dict[str, Any]:
    return {
        "request": asdict(found.request) | {"assume": dict(found.request.assume)},
        "assumptions": {
            name: asdict(assumption) for name, assumption in found.known.items()
        },
        "ways": {
            option.name: asdict(option) | {"usd": option.bill.usd}
            for option in found.ways
        },
        "saving_usd": found.saving,
        "saving_usd_band": asdict(found.saving_band),
        "swings": [asdict(swing) for swing in found.swings],
        "bought": None if found.bought is None else asdict(found.bought),
        "hybrid": None if found.hybrid is None else asdict(found.hybrid),
    }
