"""Published measurements of a model on similar GPUs, and predictions for the same
layouts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from corral.catalog.devices import device
from corral.catalog.model_names import model
from corral.catalog.runs import PublishedRun, runs
from corral.perf.layout import Recompute, Shard, TrainLayout, TrainStep
from corral.perf.software import software
from corral.perf.train_step_time import step_time
from corral.plan.report import ReportTable, columns
from corral.plan.train.layout_text import words
from corral.plan.train.layouts import TrainAsk
from corral.plan.train.plan import Trained

OLD: Final = ("megatron-2021", "megatron-deepspeed")  # no flash kernel yet
QUICKER: Final = 1.15  # than anybody published, from which on a plan says so


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFit:
    """A published run, with the predicted time per step of its layout."""

    run: PublishedRun
    layout: TrainLayout
    seconds: float

    @property
    def off(self) -> float:
        """Return the signed relative error of the prediction: 0.1 means that the
        prediction is a tenth too slow."""
        return self.seconds / self.run.seconds - 1


def published(ask: TrainAsk) -> tuple[PublishedFit, ...]:
    """Return the published runs of the same model on GPUs of the same architecture,
    with their predictions."""
    return tuple(
        held(run)
        for run in runs()
        if run.model == ask.model.name
        and device(run.gpu).architecture == ask.device.architecture
        and not ask.frozen
    )


def held(run: PublishedRun) -> PublishedFit:
    """Return the published run with its prediction. Raises: NotFound if the catalog
    lacks the run's model, GPU or library."""
    gpu_device = device(run.gpu)
    layout = TrainLayout(
        data=run.gpus // (run.tensor * run.pipeline * run.context),
        tensor=run.tensor,
        pipeline=run.pipeline,
        context=run.context,
        expert=run.expert,
        interleave=run.interleave,
        micro_batch=run.micro_batch,
        shard=Shard.NONE if run.library in OLD else Shard.OPTIMIZER,
        sequence_parallel=run.tensor > 1 and run.library not in OLD,
        recompute=Recompute(run.recompute),
    )
    step = TrainStep(
        model=model(run.model),
        sequence=run.sequence,
        global_batch=run.global_batch,
        precision=run.precision,
        has_flash=run.library not in OLD,
    )
    wires = TrainAsk(model=step.model, device=gpu_device, gpus=run.gpus).wires
    time = step_time(step, layout, gpu_device, wires, by=software(run.library))
    return PublishedFit(run=run, layout=layout, seconds=time.seconds)


def published_table(
    found: Trained, others: Sequence[PublishedFit]
) -> Iterator[ReportTable]:
    """Yield a table of published runs that are like the plan; nothing if there are
    none."""
    if not others:
        return
    own_rate = found.tokens_per_s / found.ask.gpus
    yield ReportTable(
        title="Published runs of this model on such GPUs",
        columns=columns(
            "run",
            "GPUs",
            "layout",
            "precision",
            ("context", "tokens"),
            ("rate", "tokens/s a GPU"),
            ("measured", "s a step"),
            ("predicted", "s a step"),
            ("off", "%"),
            ("this plan's rate", "times"),
        ),
        rows=tuple(
            (
                f"{published_fit.run.title}, {published_fit.run.gpu}",
                published_fit.run.gpus,
                words(published_fit.layout),
                str(published_fit.run.precision),
                published_fit.run.sequence,
                published_fit.run.tokens_per_s_per_gpu,
                published_fit.run.seconds,
                published_fit.seconds,
                round(100 * published_fit.off, 1),
                own_rate / published_fit.run.tokens_per_s_per_gpu,
            )
            for published_fit in others
        ),
        note="off: error of the prediction for their layout and batch; "
        + "; ".join(
            dict.fromkeys(
                f"{published_fit.run.title}: {published_fit.run.source}"
                for published_fit in others
            )
        ),
    )


def published_cautions(found: Trained, others: Sequence[PublishedFit]) -> Iterator[str]:
    """Yield a caution if the plan is clearly faster than each published run, with the
    error of the prediction for the fastest of them."""
    alike = [
        published_fit
        for published_fit in others
        if published_fit.run.precision.bytes == found.ask.precision.bytes
    ]
    if not alike:
        return
    fastest_fit = max(alike, key=lambda one: one.run.tokens_per_s_per_gpu)
    times = found.tokens_per_s / found.ask.gpus / fastest_fit.run.tokens_per_s_per_gpu
    if times >= QUICKER:
        yield (
            f"no published run is as fast: this plan has {times:.2f} times the tokens per second "
            f"and GPU of {fastest_fit.run.title} ({words(fastest_fit.layout)} on "
            f"{fastest_fit.run.gpus:,} {fastest_fit.run.gpu}), "
            f"for which the prediction is off by {fastest_fit.off:+.0%}; newer software may "
            "explain the rest, or the plan is too optimistic"
        )
