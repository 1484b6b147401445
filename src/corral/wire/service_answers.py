"""Requests and answers of the HTTP API about services."""

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from corral.domain import service as services
from corral.domain.errors import SpecInvalid
from corral.domain.ids import ServiceName
from corral.domain.requests import ScaleService
from corral.domain.role_rule import RoleRule
from corral.domain.service import MOST_REPLICAS, ServiceState
from corral.domain.service_condition import condition_of
from corral.domain.serving_roles import ServingRole
from corral.domain.units import counted
from corral.wire.api import EventView
from corral.wire.job_parts import ForecastView

MOST_DOCUMENTS: Final = 1_000
_RANGE: Final = re.compile(r"(\d{1,5})(?:\.\.(\d{1,5}))?", re.ASCII)

Applied = Literal["created", "changed", "revision", "returned", "unchanged"]


def replica_range(value: int | str) -> tuple[int, int]:
    """Return the least and the most replicas of 2, "2" or "1..4".

    Raises: SpecInvalid.
    """
    match = _RANGE.fullmatch(str(value))
    if match is not None:
        low = int(match.group(1))
        high = low if match.group(2) is None else int(match.group(2))
        if low <= high <= MOST_REPLICAS:
            return low, high
    raise SpecInvalid(
        f"{str(value)[:40]!r} is not a valid number or range of replicas",
        hint=f"write a number from 0 to {MOST_REPLICAS:,}, or a range, the lower number "
        "first: 1..4",
    )


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ServicesBody(_Body):
    """Documents of services (`kind: service`). `workdir` of a document is the digest of
    a snapshot that the head stores."""

    documents: Annotated[
        list[dict[str, Any]], Field(min_length=1, max_length=MOST_DOCUMENTS)
    ]


class ServiceScaleBody(_Body):
    """Numbers of replicas that a service may have: 2, or a range: "1..4". `role`: those
    of which role, of a service with roles."""

    replicas: int | Annotated[str, Field(min_length=1, max_length=20)]
    role: Literal["", "prefill", "decode"] = ""

    def to_domain(self, service: ServiceName) -> ScaleService:
        """Return the request. Raises: SpecInvalid."""
        low, high = replica_range(self.replicas)
        return ScaleService(
            service=service,
            min_replicas=low,
            max_replicas=high,
            role=ServingRole(self.role),
        )


class RollBackBody(_Body):
    """Revision to serve again; null: the one before."""

    revision: Annotated[int | None, Field(ge=1, le=2**31)] = None


class AppliedView(ForecastView):
    """Result for one service. `change`: `created`; `revision`: a new revision replaces
    its replicas; `returned`: its canary is ended, and the revision that serves stays;
    `changed`: its replicas stay; `unchanged`. `revision`: the number of the revision
    that all replicas are to have."""

    name: str
    change: Applied
    revision: int


class ServicesApplied(ForecastView):
    """Results for services that were applied, in the order of the documents.
    `warnings`: effects in the present cluster."""

    services: list[AppliedView]
    warnings: list[str] = []


class ServiceRatesView(ForecastView):
    """Measurements of the gateways over the last minute. Times are seconds; null: there
    was no request, or the answers held no tokens.

    `under_way`: requests under way now. `cached_share`: share of the prompts' tokens
    that were cached, from 0 to 1.
    """

    under_way: int = 0
    requests_per_second: float = 0.0
    failed_per_second: float = 0.0
    tokens_per_second: float = 0.0
    ttft_p50_seconds: float | None = None
    ttft_p90_seconds: float | None = None
    itl_p50_seconds: float | None = None
    itl_p90_seconds: float | None = None
    cached_share: float | None = None


class ReplicaView(ForecastView):
    """A replica of a service. `state` is the state of its job. `ready_at`: since when it
    takes requests; null: not yet. `draining_at`: since when it gets no new requests.
    `reason`: why it is not ready. `under_way`: requests under way; null: not known.
    `sleep`: `falling_asleep`, `asleep` or `waking`; "" while it is awake. `lent_to`:
    jobs that use its GPUs. `role`: `prefill` or `decode`; "" if it computes whole
    requests."""

    number: int
    job: str
    name: str
    state: str
    nodes: list[str]
    attempt: int
    revision: int
    ready_at: float | None
    draining_at: float | None
    under_way: int | None
    reason: str
    probe_text: str = ""
    sleep: str = ""
    lent_to: list[str] = []
    role: str = ""

    @property
    def is_ready(self) -> bool:
        is_serving = self.ready_at is not None and self.draining_at is None
        return is_serving and not self.sleep


class RoleView(ForecastView):
    """Replicas of one role of a service that prefills and decodes apart. `ready` of
    `wanted` replicas are ready. `replicas`: how many it may have. `reason`: why it has
    this number."""

    role: str
    ready: int
    wanted: int
    replicas: str
    reason: str

    @classmethod
    def of(cls, service: services.Service, rule: RoleRule, reason: str) -> Self:
        is_prefill = rule.role.is_prefill
        return cls(
            role=rule.role.value,
            ready=service.prefill_ready_count if is_prefill else service.ready_count,
            wanted=service.prefill.wanted if is_prefill else service.wanted,
            replicas=rule.replicas_text,
            reason=reason,
        )

    @property
    def ready_text(self) -> str:
        """Return how many of the wanted replicas are ready. For example: prefill 1 of
        2"""
        return f"{self.role} {self.ready} of {self.wanted}"


class RevisionView(ForecastView):
    """A revision of a service, and who applied it."""

    number: int
    by: str
    at: float

    @classmethod
    def of(cls, revision: services.ServiceRevision) -> Self:
        return cls(number=revision.number, by=revision.by, at=revision.at)


class ServiceRow(ForecastView):
    """A service in a listing.

    `state`: ACTIVE, STOPPING or STOPPED; `condition`: how well it serves, as
    ServiceCondition; `problem`: why it has fewer ready replicas than it wants, or why
    its newest revision does not serve.
    `revision` serves; `canary` is the revision that is being tried, or is replacing it.
    `ready` of `wanted` replicas take requests. `replicas`: how many it may have, for
    example 1..4. `url`: address of the gateway for OpenAI clients; "" without a gateway.
    `is_http`: its document names neither a model nor an engine, so it may answer any
    path. `roles`: the same numbers of the replicas of each role; empty without roles.
    """

    id: str
    name: str
    owner: str
    queue: str
    state: str
    models: list[str]
    revision: int
    canary: int | None
    ready: int
    wanted: int
    replicas: str
    reason: str
    created_at: float
    stopped_at: float | None
    rates: ServiceRatesView
    url: str
    condition: str = ""  # an older head sends neither
    problem: str = ""
    is_http: bool = False
    roles: list[RoleView] = []

    @classmethod
    def of(
        cls,
        service: services.Service,
        *,
        reason: str,
        problem: str,
        rates: ServiceRatesView,
        url: str,
        **more: Any,
    ) -> Self:
        spec = service.spec
        return cls(
            id=service.id,
            name=service.name,
            owner=service.owner,
            queue=spec.replica.queue,
            state=service.state,
            condition=condition_of(service),
            problem=problem,
            models=list(spec.models),
            revision=service.current,
            canary=service.trial,
            ready=service.all_ready,
            wanted=service.all_wanted,
            replicas=spec.replicas_text,
            reason=reason,
            created_at=service.created_at,
            stopped_at=service.stopped_at,
            rates=rates,
            url=url,
            is_http=spec.is_http,
            **more,
        )

    @property
    def is_stopped(self) -> bool:
        return self.state == ServiceState.STOPPED

    @property
    def condition_text(self) -> str:
        return self.condition or self.state

    @property
    def ready_text(self) -> str:
        """Return how many of the wanted replicas are ready. For example: 1 of 2
        replicas ready"""
        return f"{self.ready} of {counted(self.wanted, 'replica')} ready"


class ServiceView(ServiceRow):
    """Complete view of a service (`corral service show`).

    `spec`: the document of the revision that serves; null for callers who may not read
    the logs of its replicas. `failed_starts`: replicas in a row, of the revision that
    serves and of the canary, that have ended before they were ready for 60 s in all;
    `last_end`: how the last of them has ended; `retry_at`: when the next one is made.
    `turned_back`: the newest revision that did not pass its canary, and why.
    `million_token_cost`: what a million tokens, in and out, have cost since yesterday
    (UTC) by the prices of the GPUs of its replicas, in `currency`; null without a price
    or without tokens. `scale_events`: newest changes of the number of replicas and of
    its canaries with their reasons, the oldest first.
    """

    spec: dict[str, Any] | None
    revisions: list[RevisionView]
    replica_list: list[ReplicaView]
    events: list[EventView]
    failed_starts: int
    last_end: str
    retry_at: float | None
    canary_passed: bool
    turned_back: int | None
    turned_back_reason: str
    million_token_cost: float | None = None
    currency: str = ""
    scale_events: list[EventView] = []


class ServicesView(ForecastView):
    """Services by name. `url`: address of the gateway; "" without a gateway."""

    services: list[ServiceRow]
    url: str


class LentToView(ForecastView):
    """GPU-hours of sleeping replicas that the jobs of one user in one queue have used,
    on GPUs of one type. `lost_gpu_hours`: work of these that was lost when the GPUs
    were taken back. `earned`: their price at the rates of the queue; null: it has none.
    `take_backs`: jobs that were stopped for the service."""

    queue: str
    user: str
    gpu_type: str
    gpu_hours: float
    lost_gpu_hours: float
    earned: float | None
    take_backs: int


class LentView(ForecastView):
    """Room that the sleeping replicas of one service have lent since it was made.

    `sleeping`: replicas whose GPUs can be lent now. `falling_asleep`: replicas that
    still finish requests, or release their GPUs. `is_stopped`: the service has ended,
    and these sums are final. `asleep_gpu_hours`: GPU-hours that
    its replicas have slept; of these, `lent_gpu_hours` were used, and `lost_gpu_hours`
    of that was lost. `wake_seconds`: the longest of its newest wakes. `take_backs`:
    wakes for which other jobs had to stop; `take_backs_in_time` of them were ready
    within `back_within_seconds`. `take_back_seconds`: times of the newest ones, the
    newest last.
    """

    service: str
    queue: str
    sleeping: int
    falling_asleep: int = 0
    is_stopped: bool = False
    asleep_gpu_hours: float
    lent_gpu_hours: float
    lost_gpu_hours: float
    earned: float
    wakes: int
    wake_seconds: float | None
    back_within_seconds: float | None
    take_backs: int
    take_backs_in_time: int
    take_back_seconds: list[float]
    borrowers: list[LentToView]


class LentReportView(ForecastView):
    """Room that the sleeping replicas of services have lent, by service. `currency`: of what
    was earned."""

    services: list[LentView]
    currency: str
