"""Report on a serving plan."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from math import isinf
from typing import Any, Final

from corral.catalog.bands import ErrorBand, gpu_band
from corral.catalog.devices import Device
from corral.domain.units import counted
from corral.perf.serving import capacity, served
from corral.plan.report import (
    Figure,
    FigureSeries,
    PlannerReport,
    ReportFigure,
    ReportTable,
    columns,
)
from corral.plan.serve.plan import ReplicaSet, ServePlan
from corral.plan.serve.roles import RolesEstimate

POINTS: Final = 24
QUANTILES: Final = (0.5, 0.9, 0.99)
FULLEST: Final = 0.98  # of what a replica can do: where the figure ends
# Mean errors of the first token's p90 and p99 in vLLM's rows,
# validation/data/inference.csv.gz: their notes tell both. Quantiles of the time between
# tokens were not measured.
TAILS: Final = {0.9: 0.14, 0.99: 0.36}
MEASURED_TIMES: Final = {
    "serving.ttft": "the first token",
    "serving.itl": "the time between tokens",
    "serving.latency": "latency",
}
MEASURED: Final = "NVIDIA"  # vendor of the GPUs in the rows of servers under load
OPEN: Final = (
    "Requests are assumed to be alike and to arrive independently of each other. In bursts, or "
    "with prompts of very different lengths, requests wait longer than predicted."
)


def report(plan: ServePlan) -> PlannerReport:
    best_set, request = plan.best, plan.request
    spread = f"{counted(best_set.replicas, 'replica')} of {counted(best_set.replica.gpus, 'GPU')}"
    cost = best_set.usd_per_million
    price = "" if cost is None else f" at {cost:.2f} USD a million tokens"
    return PlannerReport(
        title=f"Serving {plan.model.name}: {counted(request.qps, 'request')} a second, "
        f"{counted(request.input, 'token')} in, {request.output:,} out",
        verdict=f"{best_set.gpus:,} x {best_set.replica.device.title} "
        f"({spread}){price}: 90 % of the "
        "requests have their first token within "
        f"{best_set.each.ttft_quantile(0.9) * 1e3:,.0f} ms, and each "
        f"next one within {best_set.each.itl_quantile(0.9) * 1e3:,.1f} ms."
        + _roles_sentence(plan),
        answers=tuple(_answer_figures(best_set)),
        tables=(
            _replica_set_table(plan),
            *_unfit_tables(plan),
            _latency_table(best_set),
            *_roles_tables(plan),
        ),
        figures=(_by_load(best_set),),
        assumed=plan.remarks,
        sources=(
            "steps: catalog/data/kernels.csv, engines.csv and transports.csv",
            "prices: catalog/data/prices.csv",
            *_band_sentences(best_set),
        ),
        warnings=(*plan.cautions, OPEN, *unmeasured(best_set.replica.device)),
        data=_plan_as_dict(plan),
    )


def _error_band_of(best: ReplicaSet, name: str) -> ErrorBand | None:
    return gpu_band(name, best.replica.device.chip)


def _band_sentences(best: ReplicaSet) -> Iterator[str]:
    for name, time_label in MEASURED_TIMES.items():
        if (error_band := _error_band_of(best, name)) is not None:
            yield error_band.sentence(time_label)


def unmeasured(device: Device) -> Iterator[str]:
    """Yield a warning if servers on this type of GPU were not measured under load."""
    if device.vendor != MEASURED:
        yield (
            f"Servers under load were measured only on {MEASURED} GPUs. The numbers for "
            f"{device.title} are computed from its data sheet."
        )


def _answer_figures(best: ReplicaSet) -> Iterator[ReportFigure]:
    served_load, replica = best.each, best.replica
    ttft_band, itl_band, latency_band = (
        None if error_band is None else error_band.quoted
        for error_band in map(partial(_error_band_of, best), MEASURED_TIMES)
    )
    yield ReportFigure(name="GPUs", value=best.gpus)
    yield ReportFigure(name="replicas", value=best.replicas)
    yield ReportFigure(name="GPUs a replica", value=replica.gpus)
    yield ReportFigure(
        name="batch",
        value=served_load.running,
        unit="sequences",
        band=latency_band,
        note=batch_note(best.limits.sequences, served_load.queue_seconds),
    )
    yield ReportFigure(
        name="throughput", value=best.output_rate, unit="tokens/s", note="as requested"
    )
    yield ReportFigure(
        name="load",
        value=100 * min(1.0, served_load.load.rate / best.most_rate),
        unit="%",
        band=itl_band,
        note="of the highest load within the targets",
    )
    for share in QUANTILES:
        value = served_load.ttft_quantile(share) * 1e3
        off = None if ttft_band is None else max(ttft_band, TAILS.get(share, 0.0))
        yield ReportFigure(
            name=f"TTFT p{share * 100:.0f}", value=value, unit="ms", band=off
        )
    for share in QUANTILES:
        value = served_load.itl_quantile(share) * 1e3
        note = "" if share == QUANTILES[0] else "the error is that of the mean"
        yield ReportFigure(
            name=f"ITL p{share * 100:.0f}",
            value=value,
            unit="ms",
            band=itl_band,
            note=note,
        )
    yield ReportFigure(
        name="latency",
        value=served_load.latency,
        unit="s",
        band=latency_band,
        note="mean",
    )
    if best.usd_per_hour is not None:
        yield ReportFigure(name="cost", value=best.usd_per_hour, unit="USD/h")
        yield ReportFigure(
            name="cost of a million tokens",
            value=best.usd_per_million,
            unit="USD",
            note="output tokens, at this load",
        )


def batch_note(most: int, queue_seconds: float) -> str:
    """Return a note about the batch: the most requests that it takes, and how long a
    request waits for a place in it."""
    waits = round(queue_seconds * 1e3)
    for_place = (
        f"; a request waits {waits:,} ms for its place, on average" if waits else ""
    )
    return f"on average; at most {most:,}{for_place}"


def _replica_set_table(plan: ServePlan) -> ReportTable:
    return ReportTable(
        title="GPUs that meet the targets",
        columns=columns(
            "GPU",
            "GPUs",
            "replicas",
            "GPUs a replica",
            ("TTFT p90", "ms"),
            ("ITL p90", "ms"),
            ("maximum of a replica", "requests/s"),
            ("cost", "USD/h"),
            ("a million tokens", "USD"),
        ),
        rows=tuple(
            (
                fleet.replica.device.title,
                fleet.gpus,
                fleet.replicas,
                fleet.replica.gpus,
                fleet.each.ttft_quantile(0.9) * 1e3,
                fleet.each.itl_quantile(0.9) * 1e3,
                fleet.most_rate,
                fleet.usd_per_hour,
                fleet.usd_per_million,
            )
            for fleet in plan.fleets
        ),
        note="The cheapest layout for each type of GPU, the cheapest first."
        + (
            ""
            if plan.unfit or plan.request.gpu
            else " All types with a price meet them."
        ),
    )


def _unfit_tables(plan: ServePlan) -> Iterator[ReportTable]:
    if plan.unfit:
        yield ReportTable(
            title="GPUs that miss the targets",
            columns=columns("GPU", "why"),
            rows=tuple((unfit.device.title, unfit.why) for unfit in plan.unfit),
        )


def _latency_table(best: ReplicaSet) -> ReportTable:
    served_load = best.each
    percents = (10, 25, 50, 75, 90, 95, 99, 99.9)
    return ReportTable(
        title="Times of requests",
        columns=columns(
            ("requests", "%"), ("first token within", "ms"), ("next token within", "ms")
        ),
        rows=tuple(
            (
                percent,
                served_load.ttft_quantile(percent / 100) * 1e3,
                served_load.itl_quantile(percent / 100) * 1e3,
            )
            for percent in percents
        ),
        note="Times include waiting for a place in the batch and for prompts of other requests.",
    )


def _roles_sentence(plan: ServePlan) -> str:
    roles, best_set = plan.roles, plan.best
    if roles is None or not roles.pays:
        return ""
    text = (
        f" Prefill and decode on replicas of their own ({roles.prefill:,} and "
        f"{roles.decode:,}) would pay"
    )
    fewer = best_set.replicas - roles.replicas
    if fewer:
        gpus = roles.replicas * best_set.replica.gpus
        return f"{text}: {counted(gpus, 'GPU')} would keep the targets."
    return f"{text}: the next token would come within {roles.itl * 1e3:,.1f} ms."


def _roles_tables(plan: ServePlan) -> Iterator[ReportTable]:
    roles, best_set = plan.roles, plan.best
    if roles is None:
        return
    times = (best_set.each.ttft_quantile(0.9), best_set.each.itl_quantile(0.9))
    note = (
        "The planner's model of a steady load computes this, with "
        f"{roles.transfer_seconds * 1e3:,.1f} ms to send the keys and values of a prompt."
    )
    yield roles_table("Prefill and decode apart", roles, best_set.replicas, times, note)


def roles_table(
    title: str,
    roles: RolesEstimate,
    replicas: int,
    times: tuple[float, float],
    note: str,
) -> ReportTable:
    """Return the table that compares replicas with and without roles.

    Args:
        replicas: replicas without roles.
        times: their TTFT and ITL, of which 90 % are below, in seconds; infinite where
            the load is too high.
        note: what is added to the verdict.
    """
    verdict = "would pay" if roles.pays else "would not pay"
    return ReportTable(
        title=title,
        columns=columns("replicas", ("TTFT p90", "ms"), ("ITL p90", "ms")),
        rows=(
            (
                f"{replicas:,} for both",
                *(None if isinf(seconds) else seconds * 1e3 for seconds in times),
            ),
            (
                f"{roles.prefill:,} for prefill, {roles.decode:,} for decode",
                roles.ttft * 1e3,
                roles.itl * 1e3,
            ),
        ),
        note=f"It {verdict}. {note}",
    )


def _by_load(best: ReplicaSet) -> Figure:
    """Return a figure of TTFT and ITL of one replica by its request rate."""
    max_rate = FULLEST * capacity(best.replica, best.each.load, best.limits)
    rates = [max_rate * point / POINTS for point in range(1, POINTS + 1)]
    all_ = [
        served(best.replica, replace(best.each.load, rate=rate), best.limits)
        for rate in rates
    ]
    lines = (
        ("TTFT p90", [served_load.ttft_quantile(0.9) * 1e3 for served_load in all_]),
        ("ITL p90", [served_load.itl_quantile(0.9) * 1e3 for served_load in all_]),
    )
    x, y = columns(("requests of one replica", "requests/s"), ("time", "ms"))
    return Figure(
        title="Latency by the load of a replica",
        x=x,
        y=y,
        y_is_log=True,
        series=tuple(
            FigureSeries(
                name=name,
                points=tuple(
                    (rate, value)
                    for rate, value in zip(rates, values, strict=True)
                    if not isinf(value)
                ),
            )
            for name, values in lines
        ),
    )


def _plan_as_dict(plan: ServePlan) -> dict[str, Any]:
    return {
        "request": asdict(plan.request),
        "fleets": [_fleet_data(fleet) for fleet in plan.fleets],
        "roles": None if plan.roles is None else asdict(plan.roles),
        "unfit": [{"gpu": unfit.device.name, "why": unfit.why} for unfit in plan.unfit],
    }


def _fleet_data(one: ReplicaSet) -> dict[str, Any]:
    return {
        "gpu": one.replica.device.name,
        "gpus": one.gpus,
        "replicas": one.replicas,
        "tensor": one.replica.tensor,
        "running": one.each.running,
        "most_sequences": one.limits.sequences,
        "most_requests_per_s": one.most_rate * one.replicas,
        "output_tokens_per_s": one.output_rate,
        "ttft_ms": {
            f"p{100 * q:.0f}": one.each.ttft_quantile(q) * 1e3 for q in QUANTILES
        },
        "itl_ms": {
            f"p{100 * q:.0f}": one.each.itl_quantile(q) * 1e3 for q in QUANTILES
        },
        "latency_s": one.each.latency,
        "usd_per_hour": one.usd_per_hour,
        "usd_per_million_tokens": one.usd_per_million,
    }
