"""Comparison of layouts within measured sweeps: the layout that the planner would
choose against the best measured one."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from corral.plan.report import ReportTable, columns
from corral.plan.rows.prediction_errors import LEAST_SWEEP, Pair
from corral.plan.rows.row import Row

ASKED: Final = 1.05  # of the measured time of what is chosen, over the best
_SAME: Final = (
    "source",
    "model",
    "gpu",
    "n_gpus",
    "global_batch",
    "seq_len",
    "precision",
)
_SIZES: Final = ("dp", "tp", "pp", "cp", "ep", "vp", "micro_batch")
_KINDS: Final = ("fsdp_zero_stage", "activation_checkpointing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The planner's choice within one sweep. A sweep has measurements of the same model
    on the same number of GPUs, in `layouts` layouts. `chosen`, `best` and `worst`:
    measured step seconds of the layout with the fastest prediction, of the best layout,
    and of the worst."""

    source: str
    what: str
    layouts: int
    layout: str
    chosen: float
    best: float
    worst: float

    @property
    def over_best(self) -> float:
        return self.chosen / self.best


def choices(pairs: Sequence[Pair]) -> tuple[Choice, ...]:
    """Return the choices of each sweep over several nodes. `pairs`: step seconds;
    several pairs of one layout count as one, by their mean."""
    sweeps: dict[tuple[str, ...], list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair.row.get("nodes", "") not in ("", "1"):
            sweeps[tuple(pair.row.get(name, "") for name in _SAME)].append(pair)
    choice_list = [_evaluate_sweep(sweep) for sweep in sweeps.values()]
    return tuple(choice for choice in choice_list if choice.layouts >= LEAST_SWEEP)


def _evaluate_sweep(sweep: Sequence[Pair]) -> Choice:
    layouts: dict[tuple[str, ...], list[Pair]] = defaultdict(list)
    for pair in sweep:
        layouts[tuple(pair.row.get(name, "") for name in (*_SIZES, *_KINDS))].append(
            pair
        )
    measured = {
        own_layout: fmean(pair.measured for pair in layout_pairs)
        for own_layout, layout_pairs in layouts.items()
    }
    chosen = min(layouts, key=lambda own: min(pair.predicted for pair in layouts[own]))
    row = sweep[0].row
    return Choice(
        source=row.get("source", ""),
        what=f"{row.get('model', '')} on {row.get('n_gpus', '')} {row.get('gpu', '')}",
        layouts=len(layouts),
        layout=_layout_text(layouts[chosen][0].row),
        chosen=measured[chosen],
        best=min(measured.values()),
        worst=max(measured.values()),
    )


def _layout_text(row: Row) -> str:
    sizes = ((name, row.get(name, "")) for name in _SIZES)
    size_texts = [f"{name} {size}" for name, size in sizes if size not in ("", "1")]
    return ", ".join(size_texts).replace("_", " ")


def asked_for(found: Sequence[Choice]) -> tuple[Choice, ...]:
    """Return those choices that come from vTrain, whose sweeps are the largest
    published ones."""
    return tuple(choice for choice in found if choice.source.startswith("vTrain"))


def choices_table(found: Sequence[Choice]) -> ReportTable:
    return ReportTable(
        title="Layouts chosen",
        columns=columns(
            "sweep",
            "source",
            "layouts",
            "chosen",
            ("chosen", "s"),
            ("best", "s"),
            ("worst", "s"),
            "chosen over best",
        ),
        rows=tuple(
            (
                choice.what,
                choice.source,
                choice.layouts,
                choice.layout,
                choice.chosen,
                choice.best,
                choice.worst,
                choice.over_best,
            )
            for choice in sorted(found, key=lambda one: one.source)
        ),
    )
