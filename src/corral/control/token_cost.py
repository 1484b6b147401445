"""Cost of the tokens of a service: what the GPUs of its replicas have cost, divided by
its tokens."""

from dataclasses import replace
from typing import Final

from corral.control.control import Control
from corral.domain.gateway_counts import KEPT_TOKEN_DAYS
from corral.domain.ids import JobId
from corral.domain.ledger import day_of
from corral.domain.replica_jobs import replica_id
from corral.domain.service import Service
from corral.domain.world import World
from corral.insight.open_accounts import OpenAllocations, open_accounts

MILLION: Final = 1e6
# newest replicas whose cost counts; others had ended before
MOST_REPLICAS_READ: Final = 100


async def million_token_cost(control: Control, service: Service) -> float | None:
    """Return the cost of a million tokens, in and out, in the cluster's currency: of
    this day and the one before (UTC). Tokens of batches cost BATCH_TOKEN_PRICE of it.
    None without a price of the GPUs, or without tokens."""
    today = day_of(control.now().wall)
    first_day = today - KEPT_TOKEN_DAYS + 1
    tokens = tokens_since(control.world, service, first_day)
    if not tokens:
        return None
    money = 0.0
    jobs = _replica_jobs(service)
    for job in sorted(jobs):
        recorded = await control.store.accounts(first=first_day, last=today, job=job)
        money += sum(record.amounts.money for record in recorded)
    present = OpenAllocations.of(control.world, control.now().wall)
    allocations = tuple(
        allocation for allocation in present.allocations if allocation.job in jobs
    )
    money += sum(
        record.amounts.money
        for record in open_accounts(
            replace(present, allocations=allocations, attempts={})
        )
        if first_day <= record.day <= today
    )
    return money * MILLION / tokens if money > 0 else None


def tokens_since(world: World, service: Service, day: int) -> int:
    """Return the tokens of a service in the ledger from this day on (since 1970, UTC),
    at most KEPT_TOKEN_DAYS - 1 days ago."""
    return sum(
        count.tokens_since(day)
        for count in world.gateway_counts.values()
        if count.service == service.name
    )


def _replica_jobs(service: Service) -> set[JobId]:
    first = max(1, service.next_number - MOST_REPLICAS_READ)
    newest = range(first, service.next_number)
    return {row.job for row in service.replicas} | {
        replica_id(service.id, number) for number in newest
    }
