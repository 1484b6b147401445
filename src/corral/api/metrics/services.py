"""Metrics of the services: their replicas, and what the gateways have counted."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from corral.api.job_visibility import CallerView
from corral.api.metrics.families import MetricFamily, counter, gauge
from corral.api.metrics.service_latencies import vllm_families
from corral.api.service_lookup import visible_services
from corral.control import Control
from corral.control.services.counter_sums import (
    GATEWAY_EVENTS,
    RevisionSum,
    ServiceSum,
    UnderWay,
)
from corral.domain.job_states import JobState
from corral.domain.service import ReplicaRow, Service
from corral.domain.service_condition import turned_back_text
from corral.domain.world import World

STATES: Final = ("ready", "sleeping", "starting", "waiting", "draining")
CANARY_STATES: Final = ("trial", "replacing", "turned_back")
_BY_SERVICE: Final = ("service",)
_COUNTERS: Final[tuple[tuple[str, str, Callable[[RevisionSum], float]], ...]] = (
    ("requests", "Requests to the service.", lambda total: total.requests),
    (
        "failed_requests",
        "Requests whose answer was an error of the server.",
        lambda total: total.failures,
    ),
    (
        "refused_requests",
        "Requests that gateways have refused: no replica was free, or a limit was "
        "reached.",
        lambda total: total.refusals,
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
        [((str(service.name),), service.all_wanted) for service in services],
        _BY_SERVICE,
    )
    yield from _state_families(services)
    now = control.serving_seconds()
    reported = {
        str(service.name): control.traffic.under_way(service.name, now)
        for service in services
    }
    yield gauge(
        "corral_service_gateway_up",
        "Whether a gateway has reported about the service within the last seconds.",
        [((name,), float(state is not None)) for name, state in reported.items()],
        _BY_SERVICE,
    )
    under_way = {name: state or UnderWay() for name, state in reported.items()}
    yield gauge(
        "corral_service_requests_under_way",
        "Requests to the service that are under way.",
        [((name,), state.requests) for name, state in under_way.items()],
        _BY_SERVICE,
    )
    yield gauge(
        "corral_service_requests_waiting",
        "Requests that wait in the gateways for a replica.",
        [((name,), state.queued) for name, state in under_way.items()],
        _BY_SERVICE,
    )
    sums = {
        str(service.name): control.traffic.sum_of(service.name) for service in services
    }
    yield from _counter_families(sums)
    yield from vllm_families(
        [
            (service, sums[service.name].total, under_way[service.name])
            for service in services
        ],
        control.traffic.latency_bounds,
    )


def _state_families(services: list[Service]) -> Iterator[MetricFamily]:
    """Yield the metrics of the services' revisions and targets."""
    yield gauge(
        "corral_service_revision",
        "Number of the revision that serves.",
        [((str(service.name),), service.current) for service in services],
        _BY_SERVICE,
    )
    yield gauge(
        "corral_service_canary",
        "State of the newest revision that does not serve: 1 for its state, else 0.",
        [
            ((str(service.name), state), float(state == _canary_state(service)))
            for service in services
            for state in CANARY_STATES
        ],
        ("service", "state"),
    )
    yield gauge(
        "corral_service_failed_starts",
        "Replicas in a row that have ended before they were ready for 60 s.",
        [
            ((str(service.name),), service.fruitless + service.trial_fruitless)
            for service in services
        ],
        _BY_SERVICE,
    )
    yield gauge(
        "corral_service_latency_target_seconds",
        "Latencies that 9 of 10 requests are to keep, where the spec has them.",
        [
            ((str(service.name), kind), target)
            for service in services
            for kind, target in (
                ("ttft_p90", service.spec.scale.ttft_p90_seconds),
                ("itl_p90", service.spec.scale.itl_p90_seconds),
            )
            if target is not None
        ],
        ("service", "kind"),
    )


def _canary_state(service: Service) -> str:
    """Return the state of the newest revision that does not serve: one of CANARY_STATES;
    "" without one."""
    if service.trial is not None:
        return "replacing" if service.passed else "trial"
    return "turned_back" if turned_back_text(service) else ""


def _counter_families(sums: Mapping[str, ServiceSum]) -> Iterator[MetricFamily]:
    """Yield what the gateways have counted, by the name of the service."""
    totals = [(service, whole.total) for service, whole in sums.items()]
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
    yield counter(
        "corral_service_gateway_events",
        "Retries, ejections of replicas, streams lost or continued, and clients gone.",
        [
            ((service, event), whole.events.get(event, 0))
            for service, whole in sums.items()
            for event in GATEWAY_EVENTS
        ],
        ("service", "event"),
    )
    yield counter(
        "corral_service_fallback_requests",
        "Requests that the fallback of the service has ended.",
        [((service,), whole.fallback_requests) for service, whole in sums.items()],
        _BY_SERVICE,
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
    if row.is_sleeping:
        return "sleeping"
    if row.is_ready:
        return "ready"
    is_started = world.state_of(row.job) in (JobState.STARTING, JobState.RUNNING)
    return "starting" if is_started else "waiting"
