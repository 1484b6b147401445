"""Routes of the services: which replicas take requests, and who may send them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.errors import Unauthorised
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.quota import Quota, Quotas
from corral.domain.service import ReplicaRow, Service, ServiceState, replica_key
from corral.domain.users import Role, Token, TokenKind, User, role_of
from corral.domain.world import World
from corral.wire.gateway_routes import (
    CallerEntry,
    CanaryEntry,
    ReplicaEntry,
    RoutesFile,
    ServiceEntry,
)

CALLING_ROLES: Final = frozenset({Role.CALLER, Role.USER, Role.OPERATOR, Role.ADMIN})
QUEUED_REQUESTS: Final = 1000  # that wait in a gateway for a replica of one service


def routes_of(world: World, callers: Sequence[CallerEntry], version: int) -> RoutesFile:
    """Return the routes of all services.

    Args:
        callers: Holders of valid tokens, as `callers_of` returns them.
    """
    services = sorted(world.services.values(), key=lambda one: one.name)
    names = _names_of(services)
    return RoutesFile(
        version=version,
        services=tuple(
            _service_entry(world, service, names[service.name]) for service in services
        ),
        callers=tuple(callers),
    )


def callers_of(
    tokens: Iterable[Token],
    users: Iterable[User],
    now: float,
    quotas: Mapping[str, int] | None = None,
) -> tuple[CallerEntry, ...]:
    """Return a caller for each token with which services may be called now. Viewers may
    not call them, because requests use the cluster. The tokens of a user share the
    user's limits.

    Args:
        quotas: Limits of all users in this cluster, by the name of the quota.
    """
    users_by_name = {user.name: user for user in users}
    return tuple(
        _caller_entry(token, users_by_name.get(token.user), quotas or {})
        for token in sorted(tokens, key=lambda one: (one.user, one.id))
        if _may_call(token, users_by_name.get(token.user), now)
    )


def _caller_entry(
    token: Token, user: User | None, cluster: Mapping[str, int]
) -> CallerEntry:
    name = f"{token.user}/{token.id}"
    if user is None:
        return CallerEntry(name=name, key_sha256=token.sha256)
    user_limits = dict(user.limits)
    limits = Quotas(user=user.name, role=user.role, own=user_limits, cluster=cluster)
    requests = limits.find_limit(Quota.REQUESTS_PER_MINUTE)
    tokens = limits.find_limit(Quota.TOKENS_PER_MINUTE)
    concurrency = limits.find_limit(Quota.CONCURRENT_REQUESTS)
    has_limits = (requests, tokens, concurrency) != (None, None, None)
    return CallerEntry(
        name=name,
        key_sha256=token.sha256,
        requests_per_minute=requests,
        tokens_per_minute=tokens,
        concurrency=concurrency,
        group=user.name if has_limits else None,
    )


def user_of_caller(caller: str) -> str:
    """Return the name of the user of a caller."""
    return caller.partition("/")[0]


def _may_call(token: Token, user: User | None, now: float) -> bool:
    if token.kind is not TokenKind.BEARER:
        return False
    try:
        return role_of(token, user, now) in CALLING_ROLES
    except Unauthorised:
        return False


def _names_of(services: Sequence[Service]) -> dict[str, tuple[str, ...]]:
    """Return the names under which requests reach each service: its models, and its own
    name unless that is the name of another service's model."""
    models = {
        service.name: tuple(dict.fromkeys(service.spec.models)) for service in services
    }
    taken = {model for names in models.values() for model in names}
    return {
        name: names if name in taken else (*names, name)
        for name, names in models.items()
    }


def _service_entry(
    world: World, service: Service, names: tuple[str, ...]
) -> ServiceEntry:
    spec = service.spec
    is_stopping = service.state is not ServiceState.ACTIVE
    return ServiceEntry(
        name=service.name,
        models=names,
        replicas=tuple(_replica_entries(world, service, is_stopping=is_stopping)),
        deadline_seconds=spec.deadline_seconds,
        body_bytes=spec.body_bytes,
        queue_requests=0 if is_stopping or not spec.max_replicas else QUEUED_REQUESTS,
        continues=spec.continue_by.value,  # type: ignore[arg-type]  # the same words
        canary=_canary_entry(service),
    )


def _canary_entry(service: Service) -> CanaryEntry | None:
    """Return the trial that shares the requests; None while none runs. A revision that
    has passed gets its part by its replicas."""
    if service.trial is None or service.passed:
        return None
    rule = service.spec_of(service.trial).canary
    return CanaryEntry(revision=service.trial, share=rule.share)


def _replica_entries(
    world: World, service: Service, *, is_stopping: bool
) -> Iterator[ReplicaEntry]:
    """Yield the addresses of the replicas that are ready, or that finish what they have
    begun."""
    for row in service.replicas:
        job = world.jobs.get(row.job)
        attempt = world.attempts.get(row.job)
        if job is None or attempt is None or not _has_served(row, job, attempt):
            continue
        role = job.spec.replica
        node = world.nodes.get(attempt.nodes[0])
        if role is None or node is None:
            continue
        yield ReplicaEntry(
            name=row.job,
            host=row.address or node.address,
            port=attempt.listening_port,
            key=replica_key(role, row.job, attempt.number),
            revision=row.revision,
            draining=is_stopping or not row.is_ready or job.state is JobState.STOPPING,
        )


def _has_served(row: ReplicaRow, job: Job, attempt: Attempt) -> bool:
    """Return whether the present attempt of a replica has been ready. It may be no
    longer: streams that have begun there go on."""
    is_up = job.state in (JobState.RUNNING, JobState.STOPPING)
    return is_up and row.attempt == attempt.number
