"""Writes validation/README.md, its plots and the planner's error bands: run `make validate`."""

import argparse
import csv
import gzip
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import fmean
from typing import Final

import refit

from corral.catalog.bands import ErrorBand, written
from corral.plan.page import cell_text, column_text
from corral.plan.plot import picture
from corral.plan.predictors import predictor
from corral.plan.report import ReportTable
from corral.plan.rows.measures import KINDS, MEASURES, SLICES
from corral.plan.rows.prediction_errors import (
    Errors,
    Pair,
    TablePredictions,
    by,
    errors_of,
    hold,
)
from corral.plan.validation.failure_formulas import failures_table, held_failures
from corral.plan.validation.held_out import by_kind, series_of, spreads
from corral.plan.validation.layout_choices import (
    ASKED,
    asked_for,
    choices,
    choices_table,
)
from corral.plan.validation.table_errors import errors_table, parts, scatter

HERE: Final = Path(__file__).resolve().parent
BANDS: Final = HERE.parent / "src/corral/catalog/data/bands.csv"
FITTED: Final = HERE / "fitted.csv"  # errors of all rows, those of the fits among them
SOURCE: Final = "validation/README.md"
TITLES: Final = {
    "training.memory": "memory per GPU of training",
    "memory_ci.memory": "memory per GPU, Megatron-LM's functional tests",
    "inference.static": "decode and static-batch throughput",
    "serving.ttft": "serving under load: TTFT",
    "serving.itl": "serving under load: ITL",
    "serving.latency": "serving under load: end to end",
}
PEERS: Final = {
    "training.step_time.nodes": "vTrain 14.7 %, constant utilisation 31 %",
    "training.step_time.one_node": "vTrain 8.4 %",
    "training.memory": "Calculon 8.5 % (weights and optimizer)",
    "memory_ci.memory": "Calculon 8.5 % (weights and optimizer)",
    "inference.static": "llm-analysis up to 24 to 27 %, aiconfigurator 17 %",
    "serving.ttft": "Vidur 18 %, aiconfigurator 809 %",
    "serving.itl": "Vidur 10 %",
    "serving.latency": "Vidur 9 %",
}


def outcomes() -> dict[str, TablePredictions]:
    return {kind: _held(kind)(_rows(kind)) for kind in KINDS}


def _held(kind: str) -> refit.Hold:
    return lambda rows: hold(rows, predictor(kind), MEASURES[kind])


Held = dict[
    str, tuple[str, list[Pair]]
]  # by the name of a band: its title, and its rows


def held_out() -> Held:
    """Predictions of rows by constants that were not fitted to their source."""
    training = refit.training(_rows("training"), _held("training"))
    servers = refit.inference(_rows("inference"), _held("inference"))
    tests = refit.tests(_rows("memory_ci"), _held("memory_ci"))
    found = {
        kind.name: (kind.title, pairs)
        for kind, pairs in by_kind(training.pairs["step time"]).items()
    }
    for one in SLICES:
        kept = {"training": training, "inference": servers, "memory_ci": tests}.get(
            one.kind
        )
        if kept is not None and one.name in TITLES:
            own = [pair for pair in kept.pairs[one.measure] if one.holds(pair.row)]
            found[one.name] = (TITLES[one.name], own)
    return found


def _rows(kind: str) -> list[dict[str, str]]:
    with gzip.open(
        HERE / "data" / f"{kind}.csv.gz", "rt", encoding="utf-8", newline=""
    ) as file:
        return list(csv.DictReader(file))


def page(found: Mapping[str, TablePredictions], held: Held) -> str:
    notes = (HERE / "notes.md").read_text(encoding="utf-8")
    parts = [*_head(found), *_held_out(held), notes, *_kinds(found), *_failures()]
    return "\n".join(parts) + "\n"


def _held_out(held: Held) -> Iterator[str]:
    yield "## On sources that no constant was fitted to\n"
    yield (
        "These errors stand beside predictions in reports. Each source is predicted without what "
        "was fitted to it: constants are fitted again to the other sources, or fall back to those "
        "of an unknown library, engine or architecture (`validation/refit.py`). Versions of one "
        "document are one source. Each source counts the same, however many rows it has. A GPU "
        "with three rows and more has its own line, with rows of quality C where it has no others; "
        "`other` stands for GPUs without: the mean of those with.\n"
    )
    yield "| what | GPU | rows | sources | mean | median | p90 |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, (title, pairs) in held.items():
        for own, one in spreads(name, pairs):
            gpu = own.removeprefix(name).removeprefix(".") or "all"
            errors = " | ".join(
                _percent(share) for share in (one.mean, one.median, one.p90)
            )
            yield f"| {title} | {gpu} | {one.rows} | {one.sources} | {errors} |"
    yield ""
    steps = [
        pair for name, (_, own) in held.items() if "step_time" in name for pair in own
    ]
    yield from _table(errors_table("Step time by source", _by_series(steps)))


def _by_series(pairs: Sequence[Pair]) -> list[tuple[str, Errors | None]]:
    groups: dict[str, dict[int, Pair]] = {}
    for pair in pairs:
        groups.setdefault(series_of(pair.row.get("source", "")), {})[id(pair)] = pair
    return [
        (name, errors_of(list(own.values()))) for name, own in sorted(groups.items())
    ]


def _head(found: Mapping[str, TablePredictions]) -> Iterator[str]:
    yield "# The model held against reality\n"
    yield (
        "Written by `make validate` from [data](data/README.md). Errors are absolute percentage "
        "errors of a prediction against its measurement; bias is the mean signed error; rank is "
        "Spearman's correlation within rows of one source, model and GPU. Constants were fitted to "
        "some of these rows; what reports quote is in the second table.\n"
    )
    yield "| what | rows | asked | mean | median | p90 | bias | rank | peers |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for kind in KINDS:
        for name, title, errors, asked in parts(kind, found[kind]):
            if errors is not None:
                yield _line(title, errors, asked, PEERS.get(name, ""))
    yield ""
    yield from _choices(found["training"])


def _choices(training: TablePredictions) -> Iterator[str]:
    ratios = [one.over_best for one in asked_for(choices(training.pairs["step time"]))]
    yield (
        f"Choosing the layout in vTrain's sweeps over several nodes: what is predicted to be the "
        f"quickest took {fmean(ratios):.3f} times as long as what was, in the mean of "
        f"{len(ratios)} sweeps, and at the most {max(ratios):.3f} times (asked: {ASKED}).\n"
    )


def _line(title: str, errors: Errors, asked: float | None, peers: str) -> str:
    cells = (title, str(errors.rows), _percent(asked), _percent(errors.mean),
             _percent(errors.median), _percent(errors.p90), _percent(errors.bias),
             "" if errors.rank is None else f"{errors.rank:.3f}", peers)  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _kinds(found: Mapping[str, TablePredictions]) -> Iterator[str]:
    for kind, outcome in found.items():
        refused = sum(outcome.refused.values())
        yield f"## {kind}\n"
        yield f"{outcome.rows - refused} of {outcome.rows} rows could be predicted.\n"
        for measure in MEASURES[kind]:
            pairs = outcome.pairs[measure.name]
            if not pairs:
                continue
            for column in ("gpu", "source"):
                yield f"![{measure.name} by {column}]({_plot(kind, measure.name, column)})\n"
                groups = [
                    (name, errors_of(some)) for name, some in by(pairs, column).items()
                ]
                yield from _table(errors_table(f"{measure.name} by {column}", groups))
        if kind == "training":
            yield from _table(choices_table(choices(outcome.pairs["step time"])))
        if outcome.refused:
            yield "| refused because | rows |\n| --- | --- |"
            for reason, rows in sorted(
                outcome.refused.items(), key=lambda item: -item[1]
            ):
                yield f"| {reason} | {rows} |"
            yield ""


def _failures() -> Iterator[str]:
    held = held_failures(_rows("failures"))
    yield "## failures\n"
    yield (
        f"{sum(one.within for one in held)} of {len(held)} lie within the band that is told with "
        "them. Each cluster is predicted by the others: the two whose rates are the least and the "
        "greatest of all cannot lie between those.\n"
    )
    yield from _table(failures_table(held))


def _table(table: ReportTable) -> Iterator[str]:
    yield f"| {' | '.join(column_text(column) for column in table.columns)} |"
    yield "| --- |" + " --- |" * (len(table.columns) - 1)
    for row in table.rows:
        yield f"| {' | '.join(cell_text(cell) for cell in row)} |"
    yield ""


def _plot(kind: str, measure: str, column: str) -> str:
    return f"plots/{kind}-{measure.replace(' ', '-').lower()}-{column}.svg"


def plots(found: Mapping[str, TablePredictions]) -> Iterator[tuple[str, str]]:
    """Path below this folder, and the picture."""
    for kind, outcome in found.items():
        for measure in MEASURES[kind]:
            pairs = outcome.pairs[measure.name]
            for column in ("gpu", "source") if pairs else ():
                yield (
                    _plot(kind, measure.name, column),
                    picture(scatter(measure, pairs, column)),
                )


def fitted(found: Mapping[str, TablePredictions], day: date) -> str:
    return written(
        ErrorBand(
            name=name,
            mean=errors.mean,
            median=errors.median,
            p90=errors.p90,
            rows=errors.rows,
            source=SOURCE,
            date=day,
        )
        for kind in KINDS
        for name, _, errors, _ in parts(kind, found[kind])
        if errors is not None
    )


def bands(held: Held, day: date) -> str:
    return written(
        ErrorBand(
            name=own,
            mean=one.mean,
            median=one.median,
            p90=one.p90,
            rows=one.rows,
            sources=one.sources,
            source=SOURCE,
            date=day,
        )
        for name, (_, pairs) in held.items()
        for own, one in spreads(name, pairs)
    )


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--date", type=date.fromisoformat, default=datetime.now(tz=UTC).date()
    )
    day = parser.parse_args(words).date
    found, held = outcomes(), held_out()
    (HERE / "plots").mkdir(exist_ok=True)
    for name, drawn in plots(found):
        (HERE / name).write_text(drawn, encoding="utf-8")
    (HERE / "README.md").write_text(page(found, held), encoding="utf-8")
    FITTED.write_text(fitted(found, day), encoding="utf-8")
    BANDS.write_text(bands(held, day), encoding="utf-8")
    print("\n".join([*_head(found), *_held_out(held)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
