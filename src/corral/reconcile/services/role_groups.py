"""Plan of a service's replicas in two groups: those that answer requests, and those that
only prefill. Pure functions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from corral.domain.service import Service
from corral.domain.serving_roles import ServingRole
from corral.reconcile.services.replica_plan import (
    DrainCause,
    LiveReplica,
    ReplicaPlan,
    plan_replicas,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlans:
    """Plans of the replicas that answer, and of the prefill replicas."""

    answering: ReplicaPlan
    prefill: ReplicaPlan


def plan_groups(
    service: Service,
    live: Sequence[LiveReplica],
    now: float,
    *,
    draining: frozenset[ServingRole],
) -> GroupPlans:
    """Return the next step of both groups. Each of them has its own number of replicas.
    Both change to a new revision at the same time, so that each revision has a pair.

    Args:
        live: Replicas that are not being drained.
        now: Wall clock, in seconds since 1970.
        draining: Roles of the replicas that are being drained.
    """
    answering = plan_replicas(
        service,
        [replica for replica in live if not replica.row.role.is_prefill],
        now,
        is_draining=any(not role.is_prefill for role in draining),
    )
    prefill = plan_replicas(
        _prefill_view(service),
        [replica for replica in live if replica.row.role.is_prefill],
        now,
        is_draining=ServingRole.PREFILL in draining,
    )
    makes = tuple(
        revision
        for revision in prefill.makes
        if service.spec_of(revision).prefill is not None
    )
    drains = _with_pairs(live, answering, prefill)
    return GroupPlans(
        answering=answering, prefill=replace(prefill, makes=makes, drains=drains)
    )


def _prefill_view(service: Service) -> Service:
    """Return the service as the plan of its prefill replicas sees it."""
    group = service.prefill
    return replace(
        service,
        wanted=group.wanted,
        sleeping=0,
        retry_at=group.retry_at,
        gave_way_at=group.gave_way_at,
    )


def _with_pairs(
    live: Sequence[LiveReplica], answering: ReplicaPlan, prefill: ReplicaPlan
) -> tuple[tuple[int, DrainCause], ...]:
    """Return the drains of prefill replicas without that of the last ready one of an old
    revision, while replicas of that revision answer: they take the KV caches of their
    own revision only."""
    ending = dict(answering.drains) | dict(prefill.drains)
    kept_rows = [replica.row for replica in live if replica.row.number not in ending]
    answered = {row.revision for row in kept_rows if not row.role.is_prefill}
    ready = Counter(
        row.revision for row in kept_rows if row.role.is_prefill and row.is_ready
    )
    rows = {replica.row.number: replica.row for replica in live}
    drains: list[tuple[int, DrainCause]] = []
    for number, cause in prefill.drains:
        row = rows[number]
        is_last = row.is_ready and not ready[row.revision]
        if cause is DrainCause.OLD_REVISION and is_last and row.revision in answered:
            ready[row.revision] += 1
        else:
            drains.append((number, cause))
    return tuple(drains)
