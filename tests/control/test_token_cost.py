"""The cost of a service's tokens: recorded and present use of its replicas' GPUs."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from corral.control import Control
from corral.control.services.token_cost import million_token_cost
from corral.domain.gateway_counts import CallerCounts, GatewayCount
from corral.domain.ids import JobId, QueueName, ServiceName, UserName
from corral.domain.ledger import UsageAmounts, UsageRecord
from corral.domain.service import Service
from corral.domain.units import DAY_SECONDS
from corral.domain.world import Changes
from corral.store.memory_store import MemoryStore
from tests.control.services import row, service, world_of

TODAY = 40


def counts(service: str, *days: tuple[int, int]) -> GatewayCount:
    return GatewayCount(
        process=f"process-{service}",
        service=ServiceName(service),
        queue=QueueName("default"),
        at=1.0,
        users={UserName("ann"): CallerCounts(1, 2, 0, 3)},
        days=days,
    )


def money(job: str, day: int, money: float) -> UsageRecord:
    return UsageRecord(
        day=day,
        queue=QueueName("default"),
        user=UserName("ann"),
        gpu_type="h100",
        amounts=UsageAmounts(money=money),
        job=JobId(job),
    )


def cost(
    own: Service, counted: list[GatewayCount], records: list[UsageRecord]
) -> float | None:
    async def scenario() -> float | None:
        store = MemoryStore()
        world = await store.lead()
        known = world_of(own)
        jobs = [
            replace(known.jobs[JobId("j1_3")], id=JobId(id))
            for id in ("j1_1", "j1_2", "j1_3", "j2_1")
        ]
        await store.commit(
            world.term, Changes(jobs=tuple(jobs), accounts=tuple(records))
        )
        known.gateway_counts = {count.key: count for count in counted}
        now = SimpleNamespace(wall=(TODAY + 0.5) * DAY_SECONDS)
        control = SimpleNamespace(store=store, world=known, now=lambda: now)
        return await million_token_cost(cast(Control, control), own)

    return asyncio.run(scenario())


OWN = service(row(3), next_number=4)
COUNTED = [
    counts("chat", (TODAY - 2, 9), (TODAY - 1, 300_000), (TODAY, 100_000)),
    counts("other", (TODAY, 5)),
]
RECORDS = [
    money("j1_1", TODAY - 2, 50.0),
    money("j1_2", TODAY - 1, 1.0),
    money("j1_3", TODAY, 3.0),
    money("j2_1", TODAY, 50.0),
]


def test_the_money_of_the_replicas_is_divided_by_the_tokens_of_the_same_days() -> None:
    assert cost(OWN, COUNTED, RECORDS) == pytest.approx(4.0 / 0.4)


@pytest.mark.parametrize(("counted", "records"), [([], RECORDS), (COUNTED, [])])
def test_without_tokens_or_without_a_price_there_is_no_cost(
    counted: list[GatewayCount], records: list[UsageRecord]
) -> None:
    assert cost(OWN, counted, records) is None
