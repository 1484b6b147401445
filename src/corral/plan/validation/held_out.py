"""Errors on sources that a prediction was not fitted to, with the same weight for each
source.

A source is a publisher's series: two versions of one document are one source, since a
fit to one version has used data of the other.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from corral.catalog.bands import unmeasured
from corral.catalog.devices import device
from corral.domain.errors import NotFound
from corral.plan.rows.measures import (
    is_frozen,
    is_good,
    is_narrow,
    nodes_of,
    number,
    with_experts,
)
from corral.plan.rows.prediction_errors import Pair
from corral.plan.rows.row import Row

LEAST_ROWS: Final = 3  # of one GPU, for a band of its own
SMALL_PARAMETERS: Final = 1e9  # models below wait for the host on one node
_VERSION: Final = re.compile(
    r"\([^)]*\)|\bv?\d+\.[\d.x]*\d?\b|,.*| quoted in .*| \d{4}\b.*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionKind:
    """A kind of prediction, and the rows that belong to it. `name` is the subject of
    the kind's error band."""

    name: str
    title: str
    holds: Callable[[Row], bool]


def series_of(source: str) -> str:
    """Return the source without the part that distinguishes its versions."""
    return " ".join(_VERSION.sub("", source).split())


def _is_dense(row: Row) -> bool:
    return not with_experts(row) and not is_frozen(row)


def _is_dense_half(row: Row) -> bool:
    return _is_dense(row) and not is_narrow(row)


TRAINING: Final = (
    PredictionKind(
        name="training.step_time.nodes",
        title="dense models on several nodes",
        holds=lambda row: _is_dense_half(row) and nodes_of(row) > 1,
    ),
    PredictionKind(
        name="training.step_time.one_node",
        title="dense models of 1B parameters and more on one node",
        holds=lambda row: (
            _is_dense_half(row)
            and nodes_of(row) <= 1
            and (number(row, "params") or 0) >= SMALL_PARAMETERS
        ),
    ),
    PredictionKind(
        name="training.step_time.narrow",
        title="dense models in 8 bits or fewer",
        holds=lambda row: _is_dense(row) and is_narrow(row),
    ),
    PredictionKind(
        name="training.step_time.experts",
        title="models with experts",
        holds=with_experts,
    ),
    PredictionKind(
        name="training.step_time.lora",
        title="LoRA on frozen models",
        holds=is_frozen,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Statistics of the absolute errors of some rows, with the same weight for each
    source."""

    mean: float
    median: float
    p90: float
    rows: int
    sources: int


def spread(pairs: Sequence[Pair]) -> Spread:
    """Return the errors of the pairs. Raises: ValueError if there is no pair."""
    by_source: dict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        by_source[series_of(pair.row.get("source", ""))].append(abs(pair.error))
    weighed = sorted(
        (size, 1 / (len(by_source) * len(sizes)))
        for sizes in by_source.values()
        for size in sizes
    )
    return Spread(
        mean=fmean(fmean(sizes) for sizes in by_source.values()),
        median=_weighted_quantile(weighed, 0.5),
        p90=_weighted_quantile(weighed, 0.9),
        rows=len(pairs),
        sources=len(by_source),
    )


def _weighted_quantile(weighed: Sequence[tuple[float, float]], share: float) -> float:
    so_far = 0.0
    for size, weight in weighed:
        so_far += weight
        if so_far >= share - 1e-9:
            return size
    raise ValueError("no errors: need at least one")


def chip_of(gpu: str) -> str | None:
    """Return the chip of a GPU, for example "a100" for each board with that chip; None
    if it is unknown."""
    try:
        return device(gpu).chip
    except NotFound:
        return None


def spreads(name: str, pairs: Sequence[Pair]) -> Iterator[tuple[str, Spread]]:
    """Yield (name, errors) of a kind of prediction: as a whole, of each chip with
    enough rows, and of any other chip.

    Rows that leave out parts of their configuration count only for a chip that has no
    other rows. A chip without measurements gets the mean error of the measured chips,
    each with the same weight, or the error of the whole kind if that is larger.
    """
    good = [pair for pair in pairs if is_good(pair.row)] or list(pairs)
    if not good:
        return
    overall_spread = spread(good)
    yield name, overall_spread
    pairs_by_chip, clear = _by_chip(pairs), _by_chip(good)
    chosen = {
        chip: clear if len(clear[chip]) >= LEAST_ROWS else pairs_by_chip
        for chip in pairs_by_chip
    }
    chips = {
        chip: spread(own_pairs[chip])
        for chip, own_pairs in chosen.items()
        if len(own_pairs[chip]) >= LEAST_ROWS
    }
    yield from (
        (f"{name}.{chip}", chip_spread) for chip, chip_spread in sorted(chips.items())
    )
    yield unmeasured(name), _unmeasured_spread(overall_spread, list(chips.values()))


def _by_chip(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        if chip := chip_of(pair.row.get("gpu", "")):
            groups[chip].append(pair)
    return groups


def _unmeasured_spread(whole: Spread, chips: Sequence[Spread]) -> Spread:
    known_spreads = chips or [whole]
    return Spread(
        mean=max(whole.mean, fmean(chip_spread.mean for chip_spread in known_spreads)),
        median=max(
            whole.median, fmean(chip_spread.median for chip_spread in known_spreads)
        ),
        p90=max(whole.p90, fmean(chip_spread.p90 for chip_spread in known_spreads)),
        rows=whole.rows,
        sources=whole.sources,
    )


def by_kind(pairs: Iterable[Pair]) -> Mapping[PredictionKind, list[Pair]]:
    """Return the pairs of each kind of training, in the order of the kinds."""
    kept_pairs = list(pairs)
    return {
        kind: [pair for pair in kept_pairs if kind.holds(pair.row)] for kind in TRAINING
    }
