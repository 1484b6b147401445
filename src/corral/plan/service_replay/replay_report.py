"""Report on a replayed trace, or on two replays that are compared."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from corral.catalog.bands import gpu_band
from corral.domain.units import counted, duration_text, share_text
from corral.plan.report import (
    Cell,
    Figure,
    FigureSeries,
    PlannerReport,
    ReportFigure,
    ReportTable,
    columns,
)
from corral.plan.serve.report import (
    MEASURED_TIMES,
    QUANTILES,
    TAILS,
    roles_table,
    unmeasured,
)
from corral.plan.service_replay.replay_plan import ReplayPlan
from corral.plan.service_replay.trace_outcome import ReplicaSample
from corral.plan.service_replay.virtual_gateway import (
    DEADLINE_SECONDS,
    QUEUED_REQUESTS,
)

SHOWN_EVENTS: Final = 12
POINTS: Final = 240  # of a line in the figure
Row = tuple[str, str, Callable[[ReplayPlan], Cell]]


def replay_report(
    plan: ReplayPlan, compared: ReplayPlan | None = None
) -> PlannerReport:
    """Return the report. `compared`: the same trace with another scale rule or GPU."""
    plans = (plan,) if compared is None else (plan, compared)
    trace = plan.trace
    return PlannerReport(
        title=f"Serving {plan.fleet.replica.model.name}: a trace of "
        f"{counted(trace.requests, 'request')} in {duration_text(trace.seconds)}",
        verdict=" ".join(_verdict(each, compared is not None) for each in plans),
        answers=tuple(_answers(plan)),
        tables=tuple(_tables(plans)),
        figures=(_replicas_figure(plans),),
        assumed=tuple(_assumed(plan)),
        sources=tuple(_sources(plan)),
        warnings=tuple(_warnings(plans)),
        data={"replays": [_replay_data(each) for each in plans]},
    )


def label_of(plan: ReplayPlan) -> str:
    """Return the GPU and the rule of a replay, for the head of a column."""
    if plan.least == plan.most:
        return f"{plan.fleet.replica.device.title}, {counted(plan.most, 'replica')}"
    return f"{plan.fleet.replica.device.title}, scale: {plan.request.scale_text}"


def _verdict(plan: ReplayPlan, is_compared: bool) -> str:
    outcome, replica = plan.outcome, plan.fleet.replica
    fleet = f"{plan.least}..{plan.most} replicas"
    if plan.least == plan.most:
        fleet = counted(plan.most, "replica")
    size = f"{counted(replica.gpus, 'GPU')} ({replica.device.title})"
    rule = "" if plan.least == plan.most else f", scale: {plan.request.scale_text}"
    cost = "" if plan.usd is None else f" for {plan.usd:,.2f} USD"
    times = "no request is answered"
    if outcome.answered:
        times = (
            "90 % of the answers have their first token within "
            f"{outcome.ttft_quantile(0.9) * 1e3:,.0f} ms"
        )
    if (itl := outcome.itl_quantile(0.9)) is not None:
        times += f" and each next one within {itl * 1e3:,.1f} ms"
    text = (
        f"{fleet} of {size}{rule}: {times}; {plan.gpu_hours:,.1f} GPU-hours{cost}, "
        f"{outcome.mean_replicas:.1f} replicas on average."
    )
    refused = outcome.refused + outcome.too_long
    if refused:
        text += (
            f" {counted(refused, 'request')} of {outcome.requests:,} would be refused."
        )
    return text if is_compared else f"{text}{_roles_sentence(plan)}"


def _roles_sentence(plan: ReplayPlan) -> str:
    roles = plan.roles
    if roles is None or not roles.pays:
        return ""
    return (
        f" Prefill and decode on replicas of their own ({roles.prefill} and "
        f"{roles.decode}) would pay at the mean load: TTFT p90 "
        f"{roles.ttft * 1e3:,.0f} ms and ITL p90 {roles.itl * 1e3:,.1f} ms."
    )


def _answers(plan: ReplayPlan) -> Iterator[ReportFigure]:
    outcome = plan.outcome
    chip = plan.fleet.replica.device.chip
    ttft_band, itl_band, _ = (
        None if band is None else band.quoted
        for band in (gpu_band(name, chip) for name in MEASURED_TIMES)
    )
    for share in QUANTILES:
        off = None if ttft_band is None else max(ttft_band, TAILS.get(share, 0.0))
        yield ReportFigure(
            name=f"TTFT p{share * 100:.0f}",
            value=outcome.ttft_quantile(share) * 1e3,
            unit="ms",
            band=off,
            note="" if share != QUANTILES[-1] else "of the answered requests",
        )
    for share in QUANTILES:
        yield ReportFigure(
            name=f"ITL p{share * 100:.0f}",
            value=_milliseconds(outcome.itl_quantile(share)),
            unit="ms",
            band=itl_band,
        )
    yield from _missed_answers(plan)
    yield ReportFigure(
        name="refused",
        value=100 * (outcome.refused + outcome.too_long) / outcome.requests,
        unit="%",
        note=f"at most {counted(outcome.longest_wait, 'request')} waited at one time",
    )
    yield ReportFigure(
        name="replicas",
        value=outcome.mean_replicas,
        note=f"on average; at most {outcome.most_replicas}, "
        f"{counted(len(outcome.events), 'change')}, "
        f"{counted(outcome.turns, 'turn')}",
    )
    yield ReportFigure(name="GPU-hours", value=plan.gpu_hours)
    yield ReportFigure(
        name="busy",
        value=100 * outcome.busy_share,
        unit="%",
        note="of the replicas' time",
    )
    yield ReportFigure(
        name="cached",
        value=100 * outcome.hit_share,
        unit="%",
        note="of the prompts' tokens",
    )
    if plan.usd is not None:
        yield ReportFigure(name="cost", value=plan.usd, unit="USD")
        yield ReportFigure(
            name="cost of a million tokens",
            value=plan.usd_per_million,
            unit="USD",
            note="output tokens",
        )


def _missed_answers(plan: ReplayPlan) -> Iterator[ReportFigure]:
    serve, outcome = plan.request.serve, plan.outcome
    scale = plan.request.scale
    ttft = _target(serve.ttft_p90, scale.ttft_p90_seconds)
    itl = _target(serve.itl_p90, scale.itl_p90_seconds)
    if ttft is not None:
        yield ReportFigure(
            name="over the TTFT target",
            value=100 * outcome.late_share(ttft),
            unit="%",
            note=f"of the requests: later than {ttft * 1e3:,.0f} ms, or refused",
        )
    if itl is not None:
        yield ReportFigure(
            name="over the ITL target",
            value=100 * outcome.slow_share(itl),
            unit="%",
            note=f"of the tokens: later than {itl * 1e3:,.1f} ms",
        )


def _target(milliseconds: float | None, seconds: float | None) -> float | None:
    """Return the target in seconds: the option's, else that of the scale rule."""
    return seconds if milliseconds is None else milliseconds / 1e3


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _ttft_ms(share: float, plan: ReplayPlan) -> Cell:
    return plan.outcome.ttft_quantile(share) * 1e3


def _itl_ms(share: float, plan: ReplayPlan) -> Cell:
    return _milliseconds(plan.outcome.itl_quantile(share))


def _over_ttft(plan: ReplayPlan) -> Cell:
    scale = plan.request.scale
    target = _target(plan.request.serve.ttft_p90, scale.ttft_p90_seconds)
    return None if target is None else 100 * plan.outcome.late_share(target)


COMPARED: Final[Sequence[Row]] = (
    *((f"TTFT p{100 * q:.0f}", "ms", partial(_ttft_ms, q)) for q in QUANTILES),
    *((f"ITL p{100 * q:.0f}", "ms", partial(_itl_ms, q)) for q in QUANTILES),
    ("over the TTFT target", "%", _over_ttft),
    (
        "refused",
        "%",
        lambda plan: (
            100 * (plan.outcome.refused + plan.outcome.too_long) / plan.outcome.requests
        ),
    ),
    ("replicas, mean", "", lambda plan: plan.outcome.mean_replicas),
    ("replicas, most", "", lambda plan: plan.outcome.most_replicas),
    ("changes", "", lambda plan: len(plan.outcome.events)),
    ("GPU-hours", "", lambda plan: plan.gpu_hours),
    ("cost", "USD", lambda plan: plan.usd),
    ("a million tokens", "USD", lambda plan: plan.usd_per_million),
    ("cached", "%", lambda plan: 100 * plan.outcome.hit_share),
)


def _tables(plans: Sequence[ReplayPlan]) -> Iterator[ReportTable]:
    if len(plans) > 1:
        yield ReportTable(
            title="Comparison",
            columns=columns("", "unit", *(label_of(plan) for plan in plans)),
            rows=tuple(
                (name, unit, *(value(plan) for plan in plans))
                for name, unit, value in COMPARED
                if any(value(plan) is not None for plan in plans)
            ),
        )
    for plan in plans:
        if plan.outcome.events:
            yield _events_table(plan)
    if plans[0].roles is not None:
        yield _roles_table(plans[0])


def _events_table(plan: ReplayPlan) -> ReportTable:
    events = plan.outcome.events
    causes = Counter(event.cause.replace("_", " ") for event in events)
    counts = ", ".join(f"{cause}: {count}" for cause, count in causes.most_common())
    return ReportTable(
        title=f"Changes of the number of replicas: {label_of(plan)}",
        columns=columns(("time", "s"), "from", "to", "reason"),
        rows=tuple(
            (event.at, event.before, event.wanted, event.reason)
            for event in events[:SHOWN_EVENTS]
        ),
        note=f"The first {min(SHOWN_EVENTS, len(events))} of {len(events)}; by cause: "
        f"{counts}. All are in the output of --json.",
    )


def _roles_table(plan: ReplayPlan) -> ReportTable:
    roles = plan.roles
    assert roles is not None
    note = (
        "The planner's model of a steady load computes this, with "
        f"{roles.transfer_seconds * 1e3:,.1f} ms to send the keys and values of a prompt; "
        f"in the replay, {share_text(plan.outcome.mixed_share)} of the tokens shared "
        "their step with a prompt."
    )
    return roles_table(
        "Prefill and decode apart, at the mean load",
        roles,
        roles.replicas,
        (roles.mixed_ttft, roles.mixed_itl),
        note,
    )


def _replicas_figure(plans: Sequence[ReplayPlan]) -> Figure:
    x, y = columns(("time", "minutes"), "replicas")
    lines = []
    for plan in plans:
        suffix = f": {label_of(plan)}" if len(plans) > 1 else ""
        lines.append((f"wanted{suffix}", plan, lambda sample: sample.wanted))
        lines.append((f"ready{suffix}", plan, lambda sample: sample.ready))
    return Figure(
        title="Replicas over time",
        x=x,
        y=y,
        series=tuple(
            FigureSeries(name=name, points=_points(plan.outcome.samples, value))
            for name, plan, value in lines
        ),
    )


def _points(
    samples: Sequence[ReplicaSample], value: Callable[[ReplicaSample], int]
) -> tuple[tuple[float, float], ...]:
    """Return at most about `POINTS` points; of each part, the highest."""
    size = max(1, len(samples) // POINTS)
    parts = [samples[at : at + size] for at in range(0, len(samples), size)]
    return tuple(
        (part[0].at / 60, float(max(value(sample) for sample in part)))
        for part in parts
    )


def _assumed(plan: ReplayPlan) -> Iterator[str]:
    request, replica = plan.request, plan.fleet.replica
    if not request.serve.gpu:
        yield (
            f"the GPU is {replica.device.title}, the cheapest for a steady load of the "
            "same mean; change it with --gpu"
        )
    if request.replicas is None:
        yield f"the service has {plan.least}..{plan.most} replicas; change it with --replicas"
    yield (
        f"the replay begins with {counted(plan.first, 'ready replica')}, as the mean load "
        f"needs; another one is ready after {request.start_seconds:g} s; change it with "
        "--start"
    )
    if plan.least != plan.most:
        yield f"the rule is scale: {request.scale_text}; change it with --scale"
    yield (
        f"a request waits in the gateway for at most {DEADLINE_SECONDS:.0f} s, together with "
        f"at most {QUEUED_REQUESTS:,} others"
    )
    if not plan.trace.has_blocks:
        yield (
            "the trace does not say what prompts share; set the first tokens that all "
            "share with --shared"
        )
    yield "no replica fails, and each answer has as many tokens as in the trace"


def _sources(plan: ReplayPlan) -> Iterator[str]:
    yield "steps: catalog/data/kernels.csv, engines.csv and transports.csv"
    if plan.usd is not None:
        yield "prices: catalog/data/prices.csv"
    chip = plan.fleet.replica.device.chip
    for name, time_label in MEASURED_TIMES.items():
        if (band := gpu_band(name, chip)) is not None:
            yield band.sentence(time_label)


def _warnings(plans: Sequence[ReplayPlan]) -> Iterator[str]:
    yield (
        "Errors shown as \u00b1 were measured on servers under steady loads. In bursts, the "
        "replay was not compared with a real server."
    )
    for plan in plans:
        yield from unmeasured(plan.fleet.replica.device)
        if plan.outcome.too_long:
            yield (
                f"{counted(plan.outcome.too_long, 'request')} had more tokens than a "
                "replica holds."
            )


def _replay_data(plan: ReplayPlan) -> dict[str, Any]:
    outcome, replica = plan.outcome, plan.fleet.replica
    serve, scale = plan.request.serve, plan.request.scale
    ttft = _target(serve.ttft_p90, scale.ttft_p90_seconds)
    itl = _target(serve.itl_p90, scale.itl_p90_seconds)
    return {
        "gpu": replica.device.name,
        "gpus_a_replica": replica.gpus,
        "tensor": replica.tensor,
        "least": plan.least,
        "first": plan.first,
        "most": plan.most,
        "scale": plan.request.scale_text,
        "start_s": plan.request.start_seconds,
        "trace": asdict(plan.trace),
        "requests": outcome.requests,
        "answered": outcome.answered,
        "refused": outcome.refused,
        "too_long": outcome.too_long,
        "ttft_ms": {
            f"p{100 * q:.0f}": outcome.ttft_quantile(q) * 1e3 for q in QUANTILES
        },
        "itl_ms": {
            f"p{100 * q:.0f}": _milliseconds(outcome.itl_quantile(q)) for q in QUANTILES
        },
        "over_ttft_target": None if ttft is None else outcome.late_share(ttft),
        "over_itl_target": None if itl is None else outcome.slow_share(itl),
        "mean_replicas": outcome.mean_replicas,
        "most_replicas": outcome.most_replicas,
        "turns": outcome.turns,
        "gpu_hours": plan.gpu_hours,
        "busy_share": outcome.busy_share,
        "hit_share": outcome.hit_share,
        "imbalance": outcome.imbalance,
        "usd": plan.usd,
        "usd_per_million_tokens": plan.usd_per_million,
        "roles": None if plan.roles is None else asdict(plan.roles),
        "events": [asdict(event) for event in outcome.events],
        "replicas": [asdict(sample) for sample in outcome.samples],
    }
