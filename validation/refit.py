"""Predictions of each source by constants that were not fitted to it.

A constant whose source in the catalog begins with "fit:" is fitted again to the rows of all other
sources that it applies to. Where there are too few of these, it falls back to the value that an
unknown library, engine or architecture has. Constants from data sheets, from the table of matrix
products and from papers stay.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import log
from statistics import fmean
from typing import Final

from corral.catalog import overheads
from corral.catalog.facts import Fact, table
from corral.perf import engines, software
from corral.plan.rows.measures import is_good, step_seconds
from corral.plan.rows.prediction_errors import TablePredictions
from corral.plan.rows.row import Row, RowRefused
from corral.plan.rows.training import library, read
from corral.plan.validation.held_out import series_of

Rows = Sequence[Mapping[str, str]]
Hold = Callable[[Rows], TablePredictions]
LEAST_ROWS: Final = 8  # of other sources, for a fit
MOST_ROWS: Final = 60  # that a fit is held against, evenly taken
ROUNDS: Final = 2
# Sources, and the subjects in the catalog whose fits name them.
TRAINING: Final = (
    (r"DGX Cloud", (("software", "megatron-core"), ("software", "any"), ("sustained", "hopper"))),
    (r"Megatron-LM README H100", (("software", "megatron-core"), ("sustained", "hopper"))),
    (r"Megatron Bridge", (("software", "megatron-core"), ("sustained", "blackwell"))),
    (r"vTrain|Megatron-LM SC21", (
        ("software", "megatron-2021"), ("software", "megatron-deepspeed"), ("sustained", "ampere"),
    )),
    (r"MosaicML", (("software", "llm-foundry"), ("sustained", "ampere"), ("sustained", "hopper"))),
    (r"MaxText|tpu-recipes", (
        ("software", "maxtext"), ("sustained", "tpu-v4"), ("sustained", "tpu-v5e"),
        ("sustained", "tpu-v5p"), ("sustained", "tpu-v6e"), ("sustained", "tpu-v7"),
    )),
    (r"ml-engineering", (("software", "pytorch"), ("sustained", "blackwell"))),
    (r"torchtitan", (("software", "pytorch"),)),
    (r"torchtune", (("software", "torchtune"),)),
    (r"Megatron-LM CI", (("software", "megatron-tests"),)),
)  # fmt: skip
INFERENCE: Final = (
    (r"FasterTransformer", "fastertransformer"),
    (r"TensorRT-LLM.* performance doc", "tensorrt-llm-0"),
    (r"^vLLM serving ground truth", "vllm"),
    (r"MLC llm-perf-bench", "pytorch"),
    (r"MLC llm-perf-bench", "mlc-llm"),
    (r"MLC llm-perf-bench", "exllama"),
    (r"Megatron-LM", "megatron-lm"),
    (r"llama.cpp", "llama.cpp"),
)
# Values that a fit may take, in the unit of the catalog.
GRIDS: Final = {
    "elementwise": (0.6, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 2.5),
    "square": (0.6, 0.8, 1.0, 1.3),
    "attention": (0.4, 0.5, 0.6, 0.75, 1.0),
    "logit_bytes": (30.0, 45.0, 70.0, 100.0),
    "slowdown": (0.0, 0.1, 0.3, 0.5, 0.7, 1.0),
    "tensor_hidden": (0.0, 0.15, 0.3, 0.5, 0.8),
    "pipeline_hidden": (0.0, 0.25, 0.5, 0.75),
    "host_forward": (0.1, 0.25, 0.5, 0.8, 1.2, 1.6),
    "host_backward": (0.2, 0.4, 0.65, 1.0, 1.5),
    "host_tensor": (0.0, 0.05, 0.1, 0.3, 0.6, 0.9),
    "host_expert": (0.1, 0.5, 1.0, 2.0, 3.0, 4.0),
    "host_piece": (0.0, 0.5, 1.0, 1.7),
    "step": (0.0, 2.5, 5.0, 10.0, 25.0),
    "matmul": (0.75, 0.85, 0.925, 1.0, 1.05),
    "narrow_matmul": (0.7, 0.9, 1.07, 1.25, 1.5),
    "flash_forward": (0.4, 0.5, 0.6, 0.7),
    "flash_backward": (0.25, 0.35, 0.45, 0.6),
}


@dataclass(frozen=True, slots=True)
class Constant:
    """One fitted fact of the catalog."""

    table: str
    subject: str
    quantity: str


Values = Mapping[Constant, str | None]  # None: without a value of its own


@contextmanager
def substituted(values: Values) -> Iterator[None]:
    """Hold these values in place of the catalog's."""
    before: dict[Constant, Fact] = {}
    for one, value in values.items():
        own = _facts(one)
        before[one] = own[one.quantity]
        if value is None:
            del own[one.quantity]
        else:
            own[one.quantity] = replace(own[one.quantity], value=value)
    _forget()
    try:
        yield
    finally:
        for one, fact in before.items():
            _facts(one)[one.quantity] = fact
        _forget()


def _facts(one: Constant) -> dict[str, Fact]:
    found = table(one.table)[one.subject]
    assert isinstance(found, dict)
    return found


def _forget() -> None:
    for kept in (
        software.software,
        software.sustained,
        engines.engine,
        overheads.overhead,
    ):
        kept.cache_clear()


def fitted(subject: tuple[str, str]) -> list[Constant]:
    """Return the constants of the subject that were fitted to training or inference rows."""
    name, own = subject
    facts = table(name).get(own, {})
    mark = re.compile(r"fit: validation/data/(training|inference)")
    return [
        Constant(name, own, fact.quantity)
        for fact in facts.values()
        if mark.search(fact.source)
    ]


def priors(constants: Sequence[Constant]) -> dict[Constant, str | None]:
    """Return what stands for them where nothing is known; None: the value of "any"."""
    own = {one: table(one.table)[one.subject][one.quantity].value for one in constants}
    return {
        one: own[one] if one.subject in ("any", "default") else None
        for one in constants
    }


def training(rows: Rows, hold: Hold) -> TablePredictions:
    """Predict the rows of each series of sources without what was fitted to it."""
    return _by_series(rows, hold, lambda series: _without(series, rows, hold))


def inference(rows: Rows, hold: Hold) -> TablePredictions:
    """The same of servers: engines were fitted to one series each, and fall back to the default."""

    def without(series: str) -> Values:
        named = [own for words, own in INFERENCE if re.search(words, series)]
        return priors([one for own in named for one in fitted(("engines", own))])

    return _by_series(rows, hold, without)


def tests(rows: Rows, hold: Hold) -> TablePredictions:
    """The same of Megatron-LM's functional tests, with a balanced router for experts."""
    balanced = Constant("overheads", "any", "expert_load")
    return _by_series(rows, hold, lambda series: {balanced: "1"})


def _by_series(
    rows: Rows, hold: Hold, without: Callable[[str], Values]
) -> TablePredictions:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(series_of(row.get("source", "")), []).append(row)
    outcomes = []
    for series, own in groups.items():
        with substituted(without(series)):
            outcomes.append(hold(own))
    names = outcomes[0].pairs
    pairs = {
        name: tuple(pair for one in outcomes for pair in one.pairs[name])
        for name in names
    }
    return TablePredictions(pairs=pairs, refused={}, rows=len(rows))


def _without(series: str, rows: Rows, hold: Hold) -> Values:
    named = dict.fromkeys(
        subject
        for words, subjects in TRAINING
        if re.search(words, series)
        for subject in subjects
    )
    constants = [one for subject in named for one in fitted(subject)]
    if not constants:
        return {}
    values = priors(constants)
    others = [
        row for row in rows if series_of(row["source"]) != series and _is_clear(row)
    ]
    for subject in named:
        own = fitted(subject)
        alike = _evenly([row for row in others if _concerns(row, subject)])
        if len(alike) >= LEAST_ROWS:
            values |= _fit(own, values, alike, hold)
    return values


def _is_clear(row: Row) -> bool:
    return is_good(row) and step_seconds(row) is not None


def _concerns(row: Row, subject: tuple[str, str]) -> bool:
    name, own = subject
    if own == "any":
        return True
    if name == "software":
        return library(row) == own
    try:
        return read(row).device.architecture == own
    except (RowRefused, ValueError, ArithmeticError, LookupError):
        return False


def _evenly(rows: Rows) -> Rows:
    """Return at most as many as a fit takes, each series of sources with the same share."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(series_of(row["source"]), []).append(row)
    each = max(1, MOST_ROWS // max(1, len(groups)))
    return [row for own in groups.values() for row in own[:: -(-len(own) // each)]]


def _fit(
    constants: Sequence[Constant], start: Values, rows: Rows, hold: Hold
) -> Values:
    """Return the values with the least mean error, one constant after the other."""
    values = dict(start)
    least = _error(values, rows, hold)
    for _ in range(ROUNDS):
        for one in constants:
            for value in GRIDS.get(one.quantity, ()):
                tried = {**values, one: str(value)}
                error = _error(tried, rows, hold)
                if error < least:
                    values, least = tried, error
    return {one: values[one] for one in constants}


def _error(values: Values, rows: Rows, hold: Hold) -> float:
    with substituted(values):
        pairs = hold(rows).pairs["step time"]
    return (
        fmean(abs(log(pair.predicted / pair.measured)) for pair in pairs)
        if pairs
        else 1e9
    )
