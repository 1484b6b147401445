"""Metrics of the gateway: counters and histograms, and their text for Prometheus."""

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

log = logging.getLogger(__name__)

# bounds of vLLM's histograms of the same meaning
TTFT_BOUNDS: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_BOUNDS: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_BOUNDS: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
NO_SERVICE: Final = ""


class LatencyHistogram(msgspec.Struct):
    """Counts of seconds by upper bounds."""

    bounds: tuple[float, ...]
    counts: list[int]
    sum: float = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def add(self, other: "LatencyHistogram") -> None:
        """Add the counts of a histogram with the same bounds."""
        pairs = zip(self.counts, other.counts, strict=True)
        self.counts = [first + second for first, second in pairs]
        self.sum += other.sum


def _histogram(bounds: tuple[float, ...]) -> LatencyHistogram:
    return LatencyHistogram(bounds, [0] * (len(bounds) + 1))


class ServiceMetrics(msgspec.Struct):
    """Counters of one service."""

    requests: dict[int, int] = {}
    in_flight: int = 0
    queued: int = 0
    replicas: int = 0
    retries: int = 0
    ejections: int = 0
    client_gone: int = 0
    streams_lost: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    ttft: LatencyHistogram = msgspec.field(
        default_factory=lambda: _histogram(TTFT_BOUNDS)
    )
    itl: LatencyHistogram = msgspec.field(
        default_factory=lambda: _histogram(ITL_BOUNDS)
    )
    request_seconds: LatencyHistogram = msgspec.field(
        default_factory=lambda: _histogram(REQUEST_BOUNDS)
    )

    def add(self, other: "ServiceMetrics") -> None:
        """Add the counters of another process. Each process sees the same replicas."""
        for code, count in other.requests.items():
            self.requests[code] = self.requests.get(code, 0) + count
        for _, field, _ in (*_COUNTERS, *_GAUGES):
            if field != "replicas":
                setattr(self, field, getattr(self, field) + getattr(other, field))
        for _, field, _ in _HISTOGRAMS:
            getattr(self, field).add(getattr(other, field))


_Services: TypeAlias = dict[str, ServiceMetrics]
_COUNTERS: Final = (
    ("retries_total", "retries", "Requests sent again to another replica."),
    ("ejections_total", "ejections", "Ejections of replicas."),
    ("client_gone_total", "client_gone", "Requests whose client left before the end."),
    (
        "streams_lost_total",
        "streams_lost",
        "Streams ended since their replica was lost.",
    ),
    ("prompt_tokens_total", "prompt_tokens", "Prompt tokens, as engines report them."),
    ("cached_tokens_total", "cached_tokens", "Prompt tokens that engines had cached."),
    ("generation_tokens_total", "output_tokens", "Tokens that engines generated."),
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


class GatewayMetrics:
    """Metrics of all services; services that are gone keep their counters.

    Workers of one gateway write theirs to files, and each of them answers with the sum.

    Args:
        own: File of this worker; its directory has those of the others. None: the
            gateway is one process.
    """

    __slots__ = ("_own", "services")

    def __init__(self, own: Path | None = None) -> None:
        self.services: dict[str, ServiceMetrics] = {}
        self._own = own
        if own is not None:  # a predecessor may have died
            self.services = _read(own)
            for metrics in self.services.values():
                metrics.in_flight = 0
                metrics.queued = 0

    def of(self, service: str) -> ServiceMetrics:
        """Return the counters of a service, NO_SERVICE for requests without one."""
        metrics = self.services.get(service)
        if metrics is None:
            metrics = ServiceMetrics()
            self.services[service] = metrics
        return metrics

    def write(self) -> None:
        """Write the counters for the other workers."""
        if self._own is None:
            return
        text = msgspec.json.encode(self.services)
        fresh = self._own.with_suffix(".new")
        try:
            fresh.write_bytes(text)
            fresh.replace(self._own)
        except OSError as error:
            log.warning("the metrics cannot be written: %s", error)

    def text(self, visible: Iterable[str]) -> str:
        """Return the text for Prometheus, of the services that are visible."""
        services = self._sum()
        shown = {name: services[name] for name in visible if name in services}
        return "\n".join([*_lines(shown), ""])

    def _sum(self) -> dict[str, ServiceMetrics]:
        if self._own is None:
            return self.services
        total = msgspec.json.decode(msgspec.json.encode(self.services), type=_Services)
        for path in self._own.parent.glob("*.json"):
            if path != self._own:
                for name, metrics in _read(path).items():
                    total.setdefault(name, ServiceMetrics()).add(metrics)
        return total


def _read(path: Path) -> _Services:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Services)
    except (OSError, msgspec.DecodeError):
        return {}


def _lines(services: dict[str, ServiceMetrics]) -> Iterator[str]:
    name = "corral_gateway_requests_total"
    yield f"# HELP {name} Requests by the status code of their answer."
    yield f"# TYPE {name} counter"
    for service, metrics in services.items():
        for code, count in sorted(metrics.requests.items()):
            yield f'{name}{{service="{_escaped(service)}",code="{code}"}} {count}'
    for kind, rows in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for suffix, field, text in rows:
            yield f"# HELP corral_gateway_{suffix} {text}"
            yield f"# TYPE corral_gateway_{suffix} {kind}"
            for service, metrics in services.items():
                label = _escaped(service)
                count = getattr(metrics, field)
                yield f'corral_gateway_{suffix}{{service="{label}"}} {count}'
    for suffix, field, text in _HISTOGRAMS:
        yield f"# HELP corral_gateway_{suffix} {text}"
        yield f"# TYPE corral_gateway_{suffix} histogram"
        for service, metrics in services.items():
            histogram = getattr(metrics, field)
            yield from _buckets(f"corral_gateway_{suffix}", service, histogram)


def _buckets(name: str, service: str, histogram: LatencyHistogram) -> Iterator[str]:
    label = f'service="{_escaped(service)}"'
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
