"""Training steps that other people measured and published with the whole parallel
layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache

from corral.catalog.facts import Fact, table
from corral.catalog.precisions import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """A published training run: `seconds` is the time of a step of `global_batch`
    sequences with `sequence` tokens each.

    `model`, `gpu` and `library` are names of the catalog. The sizes are those of
    perf/layout.py, and `recompute` is one of its values.
    """

    title: str
    model: str
    gpu: str
    gpus: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    interleave: int
    micro_batch: int
    global_batch: int
    sequence: int
    precision: Precision
    recompute: str
    library: str
    seconds: float
    source: str
    date: date

    @property
    def tokens_per_s_per_gpu(self) -> float:
        return self.global_batch * self.sequence / self.seconds / self.gpus


@cache
def runs() -> tuple[PublishedRun, ...]:
    """Return the runs of catalog/data/runs.csv, in order."""
    return tuple(_run_from_facts(facts) for facts in table("runs").values())


def _run_from_facts(facts: Mapping[str, Fact]) -> PublishedRun:
    def whole(quantity: str) -> int:
        return round(facts[quantity].number)

    return PublishedRun(
        title=facts["title"].value,
        model=facts["model"].value,
        gpu=facts["gpu"].value,
        gpus=whole("gpus"),
        tensor=whole("tensor"),
        pipeline=whole("pipeline"),
        context=whole("context"),
        expert=whole("expert"),
        interleave=whole("interleave"),
        micro_batch=whole("micro_batch"),
        global_batch=whole("global_batch"),
        sequence=whole("sequence"),
        precision=Precision(facts["precision"].value),
        recompute=facts["recompute"].value,
        library=facts["library"].value,
        seconds=facts["seconds"].number,
        source=facts["seconds"].source,
        date=facts["seconds"].date,
    )
