"""Errors of predictions against measurements, for a table of rows."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from statistics import fmean, median

from corral.plan.rows.row import Predict, Row, RowRefused

LEAST_SWEEP = 4  # rows of one source, model and GPU that are ranked against each other


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredColumn:
    """A predicted column and the measurement it is compared with. `measured` returns
    the measurement of a row in the unit of `predicted`; None if the row has none."""

    name: str
    predicted: str
    unit: str
    measured: Callable[[Row], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Prediction and measurement of one row."""

    row: Row
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Return the relative, signed error: 0.1 means that the prediction is a tenth
        too high."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Absolute relative errors of some rows, as fractions; `bias` is the mean signed
    error. `rank`: Spearman's correlation within each sweep, averaged over all sweeps;
    None without sweeps."""

    rows: int
    mean: float
    median: float
    p90: float
    bias: float
    rank: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePredictions:
    """All predictions of a table, paired with measurements. `refused`: the number of
    refused rows, by reason."""

    pairs: Mapping[str, tuple[Pair, ...]]  # by the measure's name
    refused: Mapping[str, int]
    rows: int


def hold(
    rows: Sequence[Row], predict: Predict, measures: Sequence[MeasuredColumn]
) -> TablePredictions:
    """Predict each row, and return the predictions paired with the measurements."""
    pairs: dict[str, list[Pair]] = {measure.name: [] for measure in measures}
    refused: dict[str, int] = defaultdict(int)
    for row in rows:
        try:
            values = predict(row).values
        except RowRefused as error:
            refused[error.message] += 1
            continue
        for measure in measures:
            measured = measure.measured(row)
            predicted = values.get(measure.predicted)
            if measured and predicted is not None and isfinite(predicted):
                pair = Pair(row=row, predicted=predicted, measured=measured)
                pairs[measure.name].append(pair)
    pairs_by_name = {
        name: tuple(measure_pairs) for name, measure_pairs in pairs.items()
    }
    return TablePredictions(pairs=pairs_by_name, refused=dict(refused), rows=len(rows))


def errors_of(pairs: Sequence[Pair]) -> Errors | None:
    """Return the errors of the pairs; None without pairs."""
    if not pairs:
        return None
    sizes = sorted(abs(pair.error) for pair in pairs)
    return Errors(
        rows=len(pairs),
        mean=fmean(sizes),
        median=median(sizes),
        p90=sizes[ceil(0.9 * len(sizes)) - 1],
        bias=fmean(pair.error for pair in pairs),
        rank=_rank_within_sweeps(pairs),
    )


def by(pairs: Iterable[Pair], column: str) -> dict[str, list[Pair]]:
    """Return the pairs, grouped by the value of a column in their rows, the largest
    group first."""
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.row.get(column, "")].append(pair)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def _rank_within_sweeps(pairs: Sequence[Pair]) -> float | None:
    sweeps: dict[tuple[str, ...], list[Pair]] = defaultdict(list)
    for pair in pairs:
        sweep_columns = ("source", "model", "collective", "gpu", "n_gpus")
        sweeps[tuple(pair.row.get(name, "") for name in sweep_columns)].append(pair)
    correlations = [
        rank_correlation(
            [pair.predicted for pair in sweep], [pair.measured for pair in sweep]
        )
        for sweep in sweeps.values()
        if len(sweep) >= LEAST_SWEEP
    ]
    known_correlations = [
        correlation for correlation in correlations if correlation is not None
    ]
    return fmean(known_correlations) if known_correlations else None


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rho, with ties at their mean rank. None if one of the sequences
    does not vary."""
    ranks = (_average_ranks(first), _average_ranks(second))
    means = [fmean(rank_list) for rank_list in ranks]
    moved = [
        [rank - mean for rank in rank_list]
        for rank_list, mean in zip(ranks, means, strict=True)
    ]
    spread = [sum(value * value for value in rank_list) for rank_list in moved]
    if min(spread) == 0:
        return None
    product_sum = sum(a * b for a, b in zip(*moved, strict=True))
    return float(product_sum / (spread[0] * spread[1]) ** 0.5)


def _average_ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    tie_start = 0
    while tie_start < len(order):
        tie_end = tie_start
        while (
            tie_end + 1 < len(order)
            and values[order[tie_end + 1]] == values[order[tie_start]]
        ):
            tie_end += 1
        for value_index in order[tie_start : tie_end + 1]:
            ranks[value_index] = (tie_start + tie_end) / 2
        tie_start = tie_end + 1
    return ranks
