"""The answer of `corral plan model` as a report."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from corral.catalog.bands import band, quoted_band
from corral.catalog.overheads import overhead
from corral.domain.units import counted, share_text
from corral.perf.serving_memory import kv_token_bytes
from corral.plan.cautions import WHOLE, cautions
from corral.plan.fit.plan import Fit, FitCandidate, Fitting, FitUse, Purpose, on_gpus
from corral.plan.report import (
    Cell,
    Figure,
    FigureSeries,
    PlannerReport,
    ReportFigure,
    ReportTable,
    TableColumn,
    columns,
)

# bands of memory: of Megatron-LM's functional tests,
PRETRAINED: Final = "memory_ci.memory"
TUNED: Final = "training.memory"  # and of runs of all kinds of libraries
# Mean error of the rows that give the memory of inference:
# docs/reference/plan-memory.md
SERVED: Final = 0.20
SERVED_ROWS: Final = 20
POINTS: Final = 24
GB: Final = 1e9
PARTS: Final = (
    "weights",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "passing",
    "KV cache",
    "buffers",
    "workspace",
    "allocator",
    "context",
    "collectives",
)
SOURCES: Final = (
    "memory of training: arXiv:2205.05198; sharding: arXiv:1910.02054; KV cache: "
    "arXiv:2309.06180",
    "memory of libraries, driver and NCCL: catalog/data/overheads.csv",
)


def report(found: Fitting, *, assumed: tuple[str, ...] = ()) -> PlannerReport:
    """Return the report. `assumed`: assumptions that the caller made."""
    ask = found.ask
    return PlannerReport(
        title=f"{ask.model.name} on {ask.device.title}",
        verdict=_verdict_text(found),
        answers=tuple(_answer_figures(found)),
        tables=(_by_purpose(found), _by_part(found), _candidate_table(found)),
        figures=_context_figures(found),
        assumed=(*assumed, *_assumption_texts(ask)),
        sources=(*SOURCES, *_band_sentences()),
        warnings=tuple(f"{caution}." for caution in cautions(ask.model, ask.context)),
        data=_fitting_as_dict(found),
    )


def _verdict_text(found: Fitting) -> str:
    ask, serving = found.ask, found.of(Purpose.INFERENCE)
    request_text = (
        f"{ask.batch:,} sequences of {ask.context:,} tokens in {ask.precision}"
    )
    trained = "; ".join(
        f"{fit.purpose} {_fit_text(fit)}"
        for fit in found.fits
        if fit.purpose is not Purpose.INFERENCE
    )
    if serving.gpus is None:
        shortage_sentence = (
            f"{request_text} do not fit on {_format_gpu_count(serving.best.gpus)}: "
            f"{_shortage_text(serving.best)}"
        )
        near = (
            f" It would fit: {'; '.join(serving.nearest)}." if serving.nearest else ""
        )
        return f"{shortage_sentence}.{near} {_capitalize_first(trained)}."
    layout = f" ({serving.best.layout})" if serving.gpus > 1 else ""
    needs_text = (
        f"Serving {request_text} needs {_format_gpu_count(serving.gpus)}{layout}; "
        f"{trained}."
    )
    return (
        f"{needs_text} {fewer_reason}"
        if (fewer_reason := _why_not_fewer(serving))
        else needs_text
    )


def _why_not_fewer(serving: Fit) -> str:
    """Return why the next smaller number of GPUs cannot serve the model; "" for one
    GPU."""
    if len(serving.tried) < 2:
        return ""
    fewer = serving.tried[-2]
    cache, usable = fewer.parts["KV cache"], fewer.usable
    weights, rest = fewer.parts["weights"], fewer.needed - cache
    gpu_count_text, room = (
        _capitalize_first(_format_gpu_count(fewer.gpus)),
        f"{usable / GB:.1f} GB are usable",
    )
    if weights > usable:
        return (
            f"{gpu_count_text} cannot hold the weights: they need {weights / GB:.1f} GB per "
            f"GPU, {room}."
        )
    if rest > usable:
        return (
            f"Too little memory on {_format_gpu_count(fewer.gpus)}: weights need "
            f"{weights / GB:.1f} GB per GPU, with driver, libraries "
            f"and one step {rest / GB:.1f} GB, without any KV cache; {room}."
        )
    return (
        f"On {_format_gpu_count(fewer.gpus)}, weights and one step leave "
        f"{(usable - rest) / GB:.1f} GB per GPU for the KV "
        f"cache, which needs {cache / GB:.1f} GB."
    )


def _capitalize_first(words: str) -> str:
    return words[:1].upper() + words[1:]


def _format_gpu_count(count: int) -> str:
    return counted(count, "GPU")


def _fit_text(fit: Fit) -> str:
    return "does not fit" if fit.gpus is None else _format_gpu_count(fit.gpus)


def _shortage_text(tried: FitCandidate) -> str:
    """Return why the model does not fit, with its largest parts."""
    largest = sorted(tried.parts.items(), key=lambda part: -part[1])[:2]
    parts_text = ", ".join(f"{name} {size / GB:,.1f}" for name, size in largest)
    need, usable = tried.needed / GB, tried.usable / GB
    return f"{need:,.1f} GB per GPU are needed ({parts_text}), {usable:,.1f} are usable"


def _answer_figures(found: Fitting) -> Iterator[ReportFigure]:
    ask = found.ask
    yield ReportFigure(
        name="parameters", value=ask.model.parameters / 1e9, unit="billion"
    )
    bytes_per_token = kv_token_bytes(ask.model, kv_bytes=ask.kv_precision.bytes)
    yield ReportFigure(
        name="KV cache of a token",
        value=bytes_per_token / 1e3,
        unit="kB",
        note="all layers",
    )
    for fit in found.fits:
        note = (
            fit.best.layout
            if fit.gpus
            else f"it would fit: {'; '.join(fit.nearest) or 'nothing known'}"
        )
        yield ReportFigure(name=f"GPUs for {fit.purpose}", value=fit.gpus, note=note)
        yield ReportFigure(
            name=f"memory for {fit.purpose}",
            value=fit.best.needed / GB,
            unit="GB a GPU",
            band=_memory_band(fit.purpose),
            note=f"of {fit.best.usable / GB:.1f} on {_format_gpu_count(fit.best.gpus)}",
        )
    on = f"on {_format_gpu_count(found.of(Purpose.INFERENCE).best.gpus)}"
    longest, max_batch = found.longest, found.most
    each_on = f"each of {counted(found.ask.batch, 'sequence')} {on}"
    yield ReportFigure(
        name="longest context", value=longest, unit="tokens", band=SERVED, note=each_on
    )
    yield ReportFigure(
        name="largest batch", value=max_batch, unit="sequences", band=SERVED, note=on
    )


def _memory_band(purpose: Purpose) -> float | None:
    if purpose is Purpose.INFERENCE:
        return SERVED
    return quoted_band(PRETRAINED if purpose is Purpose.PRETRAINING else TUNED)


def _band_sentences() -> Iterator[str]:
    rows = f"the mean absolute error over {SERVED_ROWS} rows"
    yield f"\u00b1 of serving: {rows}: docs/reference/plan-memory.md"
    for name, purpose_text in ((TUNED, "fine-tuning"), (PRETRAINED, "pre-training")):
        if (error_band := band(name)) is not None:
            yield error_band.sentence(purpose_text)


def _by_purpose(found: Fitting) -> ReportTable:
    return ReportTable(
        title="What fits",
        columns=columns("purpose", "GPUs", "layout", ("memory", "GB a GPU"), "instead"),
        rows=tuple(
            (
                fit.purpose,
                fit.gpus,
                fit.best.layout,
                round(fit.best.needed / GB, 1),
                "; ".join(fit.nearest),
            )
            for fit in found.fits
        ),
        note=f"{found.ask.usable_bytes / GB:.1f} GB of each GPU can be used",
    )


def _by_part(found: Fitting) -> ReportTable:
    part_names = {name for fit in found.fits for name in fit.best.parts}
    names = [name for name in PARTS if name in part_names]
    rows: list[tuple[Cell, ...]] = [
        (name, *(_bytes_to_gb(fit.best.parts.get(name)) for fit in found.fits))
        for name in names
    ]
    rows.append(("sum", *(_bytes_to_gb(fit.best.needed) for fit in found.fits)))
    return ReportTable(
        title="Memory of the fullest GPU by part",
        columns=(
            TableColumn(name="part"),
            *(TableColumn(name=fit.purpose, unit="GB") for fit in found.fits),
        ),
        rows=tuple(rows),
        note=(
            "passing: gradients inside a layer, beyond the memory of the logits; buffers: "
            "gathered weights; allocator: reserved and unused; context: of the driver; "
            "collectives: of NCCL"
        ),
    )


def _bytes_to_gb(size: float | None) -> float | None:
    return None if size is None else round(size / GB, 2)


def _candidate_table(found: Fitting) -> ReportTable:
    return ReportTable(
        title="What was tried",
        columns=columns("purpose", "GPUs", "layout", ("memory", "GB a GPU"), "verdict"),
        rows=tuple(
            (
                fit.purpose,
                fit_candidate.gpus,
                fit_candidate.layout,
                round(fit_candidate.needed / GB, 1),
                "fits" if fit_candidate.fits else _shortage_text(fit_candidate),
            )
            for fit in found.fits
            for fit_candidate in fit.tried
        ),
    )


def _context_figures(found: Fitting) -> tuple[Figure, ...]:
    """Return a figure of the serving layout's memory over the context; empty if no
    layout can serve."""
    ask, best_candidate = found.ask, found.of(Purpose.INFERENCE).best
    if not best_candidate.fits:
        return ()
    longest = max(found.longest, ask.context)
    contexts = sorted(
        {
            max(1, round(longest * 2 * point_index / POINTS))
            for point_index in range(1, POINTS + 1)
        }
    )
    laid = [
        (size, on_gpus(replace(ask, context=size), best_candidate.gpus))
        for size in contexts
    ]
    needed = tuple(
        (float(size), fit_candidate.needed / GB)
        for size, fit_candidate in laid
        if fit_candidate
    )
    usable = tuple(
        (float(size), best_candidate.usable / GB)
        for size in (contexts[0], contexts[-1])
    )
    return (
        Figure(
            title=f"Memory of {ask.batch:,} sequences on {_format_gpu_count(best_candidate.gpus)}",
            x=TableColumn(name="context", unit="tokens"),
            y=TableColumn(name="memory", unit="GB a GPU"),
            series=(
                FigureSeries(name="needed", points=needed),
                FigureSeries(name="can be used", points=usable),
            ),
        ),
    )


def _assumption_texts(ask: FitUse) -> Iterator[str]:
    share = overhead(ask.device.architecture).kept_free
    yield f"{share_text(share)} of a GPU's memory is kept free, as vLLM does"
    yield "memory is in decimal GB as on the data sheet; for 80 GB the driver reports 85.5"
    yield f"the KV cache is in {ask.kv_precision}; change it with --kv-precision"
    yield (
        f"LoRA has rank {ask.rank}, on all matrices except those of experts; change it with "
        "--rank"
    )
    yield (
        "training uses one sequence of this context per GPU and pass, and per parameter 16 bytes "
        "in fine-tuning (ZeRO), 18 in pre-training (Megatron-LM with a distributed optimizer)"
    )
    yield WHOLE


def _fitting_as_dict(found: Fitting) -> dict[str, Any]:
    return {
        "model": found.ask.model.name,
        "device": found.ask.device.name,
        "usable_bytes": found.ask.usable_bytes,
        "longest_context": found.longest,
        "largest_batch": found.most,
        "fits": [
            {
                "purpose": str(fit.purpose),
                "gpus": fit.gpus,
                "layout": fit.best.layout,
                "bytes": dict(fit.best.parts),
                "nearest": list(fit.nearest),
            }
            for fit in found.fits
        ],
    }
