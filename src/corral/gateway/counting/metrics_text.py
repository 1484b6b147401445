"""Text of the gateway's metrics for Prometheus."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from corral.gateway.counting.gateway_metrics import ReplicaCounters, ServiceMetrics
from corral.gateway.counting.latency_histogram import LatencyHistogram

_COUNTERS: Final = (
    ("retries_total", "retries", "Requests sent again to another replica."),
    ("ejections_total", "ejections", "Ejections of replicas."),
    ("client_gone_total", "client_gone", "Requests whose client left before the end."),
    (
        "streams_lost_total",
        "streams_lost",
        "Streams ended since their replica was lost.",
    ),
    (
        "streams_continued_total",
        "streams_continued",
        "Streams continued at another replica.",
    ),
    ("adapter_loads_total", "adapter_loads", "Adapters loaded at replicas."),
    ("adapter_unloads_total", "adapter_unloads", "Adapters unloaded for other ones."),
    ("adapter_failures_total", "adapter_failures", "Loads of adapters that failed."),
)
_TOKENS: Final = (
    ("prompt_tokens_total", "prompt", "Prompt tokens, as engines report them."),
    ("cached_tokens_total", "cached", "Prompt tokens that engines had cached."),
    ("generation_tokens_total", "output", "Tokens that engines generated."),
)
_GAUGES: Final = (
    ("requests_in_flight", "in_flight", "Requests under way, queued ones included."),
    ("requests_queued", "queued", "Requests that wait in the gateway for a replica."),
    ("replicas_available", "replicas", "Replicas that are listed and not ejected."),
)
_HISTOGRAMS: Final = (
    ("ttft_seconds", "ttft", "Time from the request to the first byte of the answer."),
    ("itl_seconds", "itl", "Time between two events of a stream."),
    ("request_seconds", "request_seconds", "Time from the request to its end."),
)
_Sums = Mapping[str, ReplicaCounters]  # by the text of the labels


def metrics_text(services: Mapping[str, ServiceMetrics]) -> str:
    """Return the text of these services. A service with revisions has a series for each
    of them; their sum is the service's."""
    sums: dict[str, ReplicaCounters] = {}
    for service, metrics in services.items():
        for revision, counters in metrics.by_revision().items():
            label = f'service="{_escaped(service)}"'
            if revision is not None:
                label += f',revision="{revision}"'
            sums[label] = counters
    return "\n".join([*_lines(services, sums), ""])


def _lines(services: Mapping[str, ServiceMetrics], sums: _Sums) -> Iterator[str]:
    yield from _family("requests_total", "counter", "Requests by status code.")
    for label, counters in sums.items():
        for code, count in sorted(counters.requests.items()):
            yield f'corral_gateway_requests_total{{{label},code="{code}"}} {count}'
    yield from _family("lost_attempts_total", "counter", "Attempts lost at replicas.")
    for label, counters in sums.items():
        for kind, count in sorted(counters.losses.items()):
            yield f'corral_gateway_lost_attempts_total{{{label},kind="{kind}"}} {count}'
    for kind, rows in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for suffix, field, text in rows:
            yield from _family(suffix, kind, text)
            for service, metrics in services.items():
                label = f'service="{_escaped(service)}"'
                yield f"corral_gateway_{suffix}{{{label}}} {getattr(metrics, field)}"
    for suffix, field, text in _TOKENS:
        yield from _family(suffix, "counter", text)
        for label, counters in sums.items():
            count = getattr(counters.token_sums, field)
            yield f"corral_gateway_{suffix}{{{label}}} {count}"
    yield from _fallback_lines(services)
    yield from _prefill_lines(services, sums)
    for suffix, field, text in _HISTOGRAMS:
        yield from _family(suffix, "histogram", text)
        for label, counters in sums.items():
            histogram = getattr(counters, field)
            yield from _buckets(f"corral_gateway_{suffix}", label, histogram)


def _fallback_lines(services: Mapping[str, ServiceMetrics]) -> Iterator[str]:
    """Yield the counters of fallbacks, of the services that have used theirs."""
    used = {
        name: metrics.fallback
        for name, metrics in services.items()
        if metrics.fallback.requests
    }
    if not used:
        return
    yield from _family(
        "fallback_requests_total", "counter", "Requests that a fallback has ended."
    )
    for service, counters in used.items():
        label = f'service="{_escaped(service)}"'
        for code, count in sorted(counters.requests.items()):
            yield (
                f'corral_gateway_fallback_requests_total{{{label},code="{code}"}} '
                f"{count}"
            )
    yield from _family(
        "fallback_tokens_total", "counter", "Tokens, in and out, of fallbacks."
    )
    for service, counters in used.items():
        sums = counters.token_sums
        label = f'service="{_escaped(service)}"'
        count = sums.prompt + sums.output
        yield f"corral_gateway_fallback_tokens_total{{{label}}} {count}"


def _prefill_lines(
    services: Mapping[str, ServiceMetrics], sums: _Sums
) -> Iterator[str]:
    """Yield where prompts were computed, of the services with replicas for prefill."""
    used = {name: metrics.prefill for name, metrics in services.items()}
    if not any(used.values()):
        return
    yield from _family(
        "prefill_requests_total",
        "counter",
        "Requests by where their prompt was computed.",
    )
    for service, counts in used.items():
        label = f'service="{_escaped(service)}"'
        for outcome, count in sorted(counts.items()):
            yield (
                f'corral_gateway_prefill_requests_total{{{label},outcome="{outcome}"}} '
                f"{count}"
            )
    yield from _family(
        "prefill_seconds", "histogram", "Time of a prompt at a replica for prefill."
    )
    for label, counters in sums.items():
        if any(counters.prefill_seconds.counts):
            histogram = counters.prefill_seconds
            yield from _buckets("corral_gateway_prefill_seconds", label, histogram)


def _family(suffix: str, kind: str, text: str) -> Iterable[str]:
    yield f"# HELP corral_gateway_{suffix} {text}"
    yield f"# TYPE corral_gateway_{suffix} {kind}"


def _buckets(name: str, label: str, histogram: LatencyHistogram) -> Iterator[str]:
    total = 0
    for bound, count in zip(
        [*map(str, histogram.bounds), "+Inf"], histogram.counts, strict=True
    ):
        total += count
        yield f'{name}_bucket{{{label},le="{bound}"}} {total}'
    yield f"{name}_sum{{{label}}} {histogram.sum:.6f}"
    yield f"{name}_count{{{label}}} {total}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
