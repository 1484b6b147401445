"""Evaluation of a table of rows: the errors of its predictions, as a whole, by part, by
GPU and by source."""

from collections.abc import Sequence
from dataclasses import asdict

from corral.plan.predictors import predictor
from corral.plan.report import (
    Figure,
    FigureSeries,
    PlannerReport,
    ReportTable,
    TableColumn,
    columns,
)
from corral.plan.rows.measures import MEASURES, SLICES
from corral.plan.rows.prediction_errors import (
    Errors,
    MeasuredColumn,
    Pair,
    TablePredictions,
    by,
    errors_of,
    hold,
)
from corral.plan.rows.row import Row
from corral.plan.validation.layout_choices import choices, choices_table

HEADS = columns(
    "of", "rows", ("mean", "%"), ("median", "%"), ("p90", "%"), ("bias", "%"), "rank"
)
MOST_COLOURS = 5  # GPUs that have one of their own in a plot; the rest share one


def judged(kind: str, rows: Sequence[Row], *, title: str) -> PlannerReport:
    """Return the report on the errors of a table. Raises: NotFound for an unknown kind."""
    outcome = hold(rows, predictor(kind), MEASURES[kind])
    measures = [
        measured_column
        for measured_column in MEASURES[kind]
        if outcome.pairs[measured_column.name]
    ]
    refused = sum(outcome.refused.values())
    return PlannerReport(
        title=title,
        verdict=f"{outcome.rows - refused} of {outcome.rows} rows could be predicted.",
        answers=(),
        tables=tuple(_error_tables(kind, outcome, measures)),
        figures=tuple(
            scatter(measure, outcome.pairs[measure.name], "gpu") for measure in measures
        ),
        data={
            "kind": kind,
            "rows": outcome.rows,
            "refused": dict(outcome.refused),
            "errors": {
                measure.name: _error_fields(outcome.pairs[measure.name])
                for measure in measures
            },
            "parts": {
                name: asdict(errors)
                for name, _, errors, _ in parts(kind, outcome)
                if errors
            },
        },
    )


def parts(
    kind: str, outcome: TablePredictions
) -> list[tuple[str, str, Errors | None, float | None]]:
    """Return, for each published part of that kind of table, its name, its title, its
    errors and the limit of its mean error. Errors and limit may be None."""
    return [
        (
            table_slice.name,
            table_slice.title,
            errors_of(
                [
                    pair
                    for pair in outcome.pairs[table_slice.measure]
                    if table_slice.holds(pair.row)
                ]
            ),
            table_slice.asked,
        )
        for table_slice in SLICES
        if table_slice.kind == kind
    ]


def _error_fields(pairs: Sequence[Pair]) -> dict[str, object]:
    errors = errors_of(pairs)
    return asdict(errors) if errors else {}


def _error_tables(
    kind: str, outcome: TablePredictions, measures: Sequence[MeasuredColumn]
) -> list[ReportTable]:
    overall_errors = [
        (measured_column.name, errors_of(outcome.pairs[measured_column.name]))
        for measured_column in measures
    ]
    tables = [errors_table("All rows", overall_errors)]
    published = [
        (title, errors) for _, title, errors, _ in parts(kind, outcome) if errors
    ]
    if published:
        tables.append(errors_table("Parts that are published", published))
    for measure in measures:
        pairs = outcome.pairs[measure.name]
        for column, column_title in (("gpu", "GPU"), ("source", "source")):
            groups = [
                (name, errors_of(group_pairs))
                for name, group_pairs in by(pairs, column).items()
            ]
            if len(groups) > 1:
                tables.append(errors_table(f"{measure.name} by {column_title}", groups))
    if layout_choices := choices(outcome.pairs.get("step time", ())):
        tables.append(choices_table(layout_choices))
    if outcome.refused:
        rows = sorted(outcome.refused.items(), key=lambda item: -item[1])
        tables.append(
            ReportTable(
                title="Refused", columns=columns("why", "rows"), rows=tuple(rows)
            )
        )
    return tables


def errors_table(
    title: str, groups: Sequence[tuple[str, Errors | None]]
) -> ReportTable:
    return ReportTable(
        title=title,
        columns=HEADS,
        rows=tuple(
            (
                name,
                errors.rows,
                *(
                    100 * error_share
                    for error_share in (
                        errors.mean,
                        errors.median,
                        errors.p90,
                        errors.bias,
                    )
                ),
                errors.rank,
            )
            for name, errors in groups
            if errors is not None
        ),
    )


def scatter(measure: MeasuredColumn, pairs: Sequence[Pair], column: str) -> Figure:
    """Return a figure of predicted over measured values, coloured by `column`. On the
    diagonal they are equal."""
    groups = by(pairs, column)
    shown_names = list(groups)[:MOST_COLOURS]
    series = [_scatter_series(name, groups[name]) for name in shown_names]
    rest = [
        pair
        for name, group_pairs in groups.items()
        if name not in shown_names
        for pair in group_pairs
    ]
    if rest:
        series.append(_scatter_series("others", rest))
    return Figure(
        title=f"{measure.name}: predicted over measured, by {column}",
        x=TableColumn(name="measured", unit=measure.unit),
        y=TableColumn(name="predicted", unit=measure.unit),
        series=tuple(series),
        kind="points",
        x_is_log=True,
        y_is_log=True,
    )


def _scatter_series(name: str, pairs: Sequence[Pair]) -> FigureSeries:
    return FigureSeries(
        name=name, points=tuple((pair.measured, pair.predicted) for pair in pairs)
    )
