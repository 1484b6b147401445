"""Latencies, tokens and requests of services, under the names of the metrics of vLLM, so
that dashboards that are drawn for it show services.

Source: vLLM, "Production metrics"; the gateways' histograms have the same buckets.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from corral.api.metrics.families import (
    Buckets,
    MetricFamily,
    counter,
    gauge,
    histogram,
)
from corral.control.services.counter_sums import LatencySum, RevisionSum, UnderWay
from corral.domain.service import Service

LABELS: Final = ("model_name", "service")
Totals = Sequence[tuple[Service, RevisionSum, UnderWay]]


def vllm_families(
    totals: Totals, bounds: Mapping[str, tuple[float, ...]]
) -> Iterator[MetricFamily]:
    """Yield the families. `bounds`: upper bounds in seconds of the histograms."""
    yield _histogram(
        "vllm:time_to_first_token_seconds",
        "Time from the arrival of a request to the first byte of its answer.",
        [(service, total.ttft) for service, total, _ in totals],
        bounds.get("ttft", ()),
    )
    yield _histogram(
        "vllm:inter_token_latency_seconds",
        "Time between two events of a stream.",
        [(service, total.itl) for service, total, _ in totals],
        bounds.get("itl", ()),
    )
    for name, help, values in (
        (
            "vllm:num_requests_running",
            "Requests at replicas.",
            [under_way.requests - under_way.queued for _, _, under_way in totals],
        ),
        (
            "vllm:num_requests_waiting",
            "Requests that wait in the gateways for a replica.",
            [under_way.queued for _, _, under_way in totals],
        ),
    ):
        yield gauge(name, help, _rows(totals, values), LABELS)
    for name, help, values in (
        (
            "vllm:prompt_tokens",
            "Tokens of prompts.",
            [total.prompt_tokens for _, total, _ in totals],
        ),
        (
            "vllm:generation_tokens",
            "Tokens of answers.",
            [total.output_tokens for _, total, _ in totals],
        ),
        (
            "vllm:prefix_cache_queries",
            "Tokens of prompts that were looked up in the caches of replicas.",
            [total.prompt_tokens for _, total, _ in totals],
        ),
        (
            "vllm:prefix_cache_hits",
            "Tokens of prompts that the replicas had cached.",
            [total.cached_tokens for _, total, _ in totals],
        ),
    ):
        yield counter(name, help, _rows(totals, values), LABELS)


def _rows(
    totals: Totals, values: Sequence[int]
) -> Iterator[tuple[tuple[str, ...], float]]:
    for (service, _, _), value in zip(totals, values, strict=True):
        yield _labels(service), float(max(0, value))


def _labels(service: Service) -> tuple[str, ...]:
    models = service.spec.models
    return (models[0] if models else str(service.name), str(service.name))


def _histogram(
    name: str,
    help: str,
    sums: Sequence[tuple[Service, LatencySum]],
    bounds: tuple[float, ...],
) -> MetricFamily:
    """Return a histogram of the services whose latencies have these bounds."""
    rows = [
        (_labels(service), _cumulative(latency.counts, bounds), latency.seconds)
        for service, latency in sums
        if bounds and len(latency.counts) == len(bounds) + 1
    ]
    return histogram(name, help, rows, LABELS)


def _cumulative(counts: tuple[int, ...], bounds: tuple[float, ...]) -> Buckets:
    buckets = []
    below = 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return buckets
