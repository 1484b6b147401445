"""Routes of the services: which replicas take requests, and who may send them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from corral.control.services.token_budgets import (
    key_budget,
    queue_budgets,
    user_budget,
)
from corral.domain.attempt import Attempt
from corral.domain.errors import Unauthorised
from corral.domain.ids import ServiceName, TokenId, UserName
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.quota import Quota, Quotas
from corral.domain.replica_jobs import replica_key
from corral.domain.service import ReplicaRow, Service, ServiceState
from corral.domain.service_access import Adapter, may_call
from corral.domain.serving_roles import CacheTransfer
from corral.domain.users import Role, Token, TokenKind, User, role_of
from corral.domain.world import World
from corral.wire.caller_names import BATCH_MARK
from corral.wire.gateway_routes import (
    AdapterEntry,
    CallerEntry,
    CanaryEntry,
    FallbackEntry,
    KvEventsEntry,
    ReplicaEntry,
    RoutesFile,
    ServiceEntry,
)
from corral.wire.model_source import model_source_of

CALLING_ROLES: Final = frozenset({Role.CALLER, Role.USER, Role.OPERATOR, Role.ADMIN})
QUEUED_REQUESTS: Final = 1000  # that wait in a gateway for a replica of one service


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteInputs:
    """What routes depend on and is not in the world.

    Args:
        roles: Roles of the users. A user without an entry has the role user.
        fallback_keys: API keys of fallbacks, by service.
        fallback_private_ok: Whether fallbacks may have private addresses.
    """

    roles: Mapping[UserName, Role] = field(default_factory=dict)
    fallback_keys: Mapping[ServiceName, str] = field(default_factory=dict, repr=False)
    fallback_private_ok: bool = False


def routes_of(
    world: World,
    callers: Sequence[CallerEntry],
    version: int,
    inputs: RouteInputs | None = None,
) -> RoutesFile:
    """Return the routes of all services.

    Args:
        callers: Holders of valid tokens, as `callers_of` returns them.
    """
    inputs = inputs or RouteInputs()
    services = sorted(world.services.values(), key=lambda one: one.name)
    names = _names_of(services)
    return RoutesFile(
        version=version,
        services=tuple(
            msgspec.structs.replace(
                _service_entry(world, service, names[service.name]),
                allow=_allowed_callers(world, service, callers, inputs),
                fallback=_fallback_entry(service, inputs),
                budgets=queue_budgets(world.queues, service.spec.replica.queue),
            )
            for service in services
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
    of_key = None if token.tokens_per_month is None else key_budget(token.id)
    if user is None:
        return CallerEntry(name=name, key_sha256=token.sha256, key_budget=of_key)
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
        budget=user_budget(user.name)
        if limits.find_limit(Quota.TOKENS_PER_MONTH) is not None
        else None,
        key_budget=of_key,
    )


def user_of_caller(caller: str) -> str:
    """Return the name of the user of a caller."""
    return caller.partition("/")[0]


def token_of_caller(caller: str) -> TokenId:
    """Return the id of the token of a caller."""
    return TokenId(caller.partition("/")[2].removesuffix(BATCH_MARK))


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
    taken = {model for names in models.values() for model in names} | {
        adapter.name for service in services for adapter in service.spec.adapters
    }
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
        adapters=tuple(
            AdapterEntry(name=adapter.name, path=_adapter_path(adapter))
            for adapter in spec.adapters
        ),
        adapter_calls=spec.engine if spec.adapters else "none",  # type: ignore[arg-type]
        max_adapters=spec.max_adapters,
        transfer=_transfer_of(service).value,  # type: ignore[arg-type]
    )


def _transfer_of(service: Service) -> CacheTransfer:
    """Return how KV caches get from prefill to decode replicas, by the revision that
    serves or, if this one has no roles, by the one that replaces it."""
    return service.spec.transfer or service.spec_of(service.goal).transfer


def _adapter_path(adapter: Adapter) -> str:
    """Return the location of an adapter as engines take it."""
    return model_source_of(adapter.source).location


def _allowed_callers(
    world: World, service: Service, callers: Sequence[CallerEntry], inputs: RouteInputs
) -> tuple[str, ...] | None:
    """Return the callers that may call a service; None: all."""
    access = service.spec.allow
    if access is None:
        return None
    users = {user_of_caller(caller.name) for caller in callers}
    allowed = {
        user
        for user in map(UserName, users)
        if may_call(
            access,
            service.owner,
            user,
            inputs.roles.get(user, Role.USER),
            world.queues,
        )
    }
    return tuple(
        caller.name for caller in callers if user_of_caller(caller.name) in allowed
    )


def _fallback_entry(service: Service, inputs: RouteInputs) -> FallbackEntry | None:
    """Return the fallback of a service; None without one, and while its API key is not
    available."""
    rule = service.spec.fallback
    key = inputs.fallback_keys.get(service.name)
    if rule is None or key is None or service.state is not ServiceState.ACTIVE:
        return None
    return FallbackEntry(
        url=rule.url,
        model=rule.model,
        key=key,
        private_ok=inputs.fallback_private_ok,
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
            kv_events=KvEventsEntry(*attempt.kv_ports) if attempt.kv_ports else None,
            role=row.role.value,  # type: ignore[arg-type]  # the same words
            bootstrap_port=attempt.transfer_port if row.role.is_prefill else None,
        )


def _has_served(row: ReplicaRow, job: Job, attempt: Attempt) -> bool:
    """Return whether the present attempt of a replica has been ready. It may be no
    longer: streams that have begun there go on. One that sleeps has none."""
    if row.sleep is not None and row.sleep.finished_at is not None:
        return False
    is_up = job.state in (JobState.RUNNING, JobState.STOPPING)
    return is_up and row.attempt == attempt.number
