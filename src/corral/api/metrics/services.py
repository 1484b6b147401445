"""Metrics of the services: their replicas, and what the gateways have counted."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from corral.api.job_visibility import CallerView
from corral.api.metrics.families import MetricFamily, counter, gauge
from corral.api.service_lookup import visible_services
from corral.control import Control
from corral.control.services.counter_sums import RevisionSum
from corral.domain.job_states import JobState
from corral.domain.service import ReplicaRow, Service
from corral.domain.world import World

STATES: Final = ("ready", "starting", "waiting", "draining")
_BY_SERVICE: Final = ("service",)
_COUNTERS: Final[tuple[tuple[str, str, Callable[[RevisionSum], float]], ...]] = (
    ("requests", "Requests to the service.", lambda total: total.requests),
    (
        "failed_requests",
        "Requests whose answer was an error of the server.",
        lambda total: total.failures,
    ),
    (
        "lost_attempts",
        "Attempts that were lost with a replica; another one may have answered.",
        lambda total: total.losses,
    ),
)


def service_families(control: Control, sight: CallerView) -> Iterator[MetricFamily]:
    """Yield the metrics of the services that the caller may see."""
    services = visible_services(sight, control.world.services.values())
    yield gauge(
        "corral_service_replicas",
        "Unfinished replicas of the service, by state.",
        _replica_counts(control.world, services).items(),
        ("service", "state"),
    )
    yield gauge(
        "corral_service_wanted",
        "Replicas that the demand on the service needs.",
        [((str(service.name),), service.wanted) for service in services],
        _BY_SERVICE,
    )
    now = control.serving_seconds()
    yield gauge(
        "corral_service_requests_under_way",
        "Requests to the service that are under way.",
        [
            (
                (str(service.name),),
                control.traffic.service_rates(service.name, now).under_way,
            )
            for service in services
        ],
        _BY_SERVICE,
    )
    totals = [
        (str(service.name), control.traffic.sum_of(service.name).total)
        for service in services
    ]
    for name, help, value_of in _COUNTERS:
        rows = [((service,), value_of(total)) for service, total in totals]
        yield counter(f"corral_service_{name}", help, rows, _BY_SERVICE)
    yield counter(
        "corral_service_tokens",
        "Tokens of the service: prompt, cached (a part of prompt) and output.",
        [
            ((service, kind), tokens)
            for service, total in totals
            for kind, tokens in (
                ("prompt", total.prompt_tokens),
                ("cached", total.cached_tokens),
                ("output", total.output_tokens),
            )
        ],
        ("service", "kind"),
    )


def _replica_counts(world: World, services: list[Service]) -> Counter[tuple[str, ...]]:
    counts: Counter[tuple[str, ...]] = Counter()
    for service in services:
        for state in STATES:
            # a series that is not there cannot be 0
            counts[str(service.name), state] += 0
        for row in service.replicas:
            counts[str(service.name), _state_of(world, row)] += 1
    return counts


def _state_of(world: World, row: ReplicaRow) -> str:
    """Return the state of a replica: one of STATES."""
    if row.draining_at is not None:
        return "draining"
    if row.is_ready:
        return "ready"
    is_started = world.state_of(row.job) in (JobState.STARTING, JobState.RUNNING)
    return "starting" if is_started else "waiting"
