"""The cost of a service's tokens: recorded and present use of its replicas' GPUs."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from corral.control import Control
from corral.control.token_cost import million_token_cost
from corral.domain.attempt import Allocation, Seat, SeatState
from corral.domain.gateway_counts import CallerCounts, GatewayCount
from corral.domain.ids import (
    AttemptNumber,
    JobId,
    NodeId,
    QueueName,
    ServiceName,
    UserName,
)
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
    own: Service,
    counted: list[GatewayCount],
    records: list[UsageRecord],
    *,
    hours: float = 0.0,
) -> float | None:
    """`hours`: for which replica 3 holds a GPU of 8 EUR an hour now."""

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
        seat = Seat(node=NodeId("n1"), gpus=(0,), gpu_millis=1000)
        node = known.nodes[seat.node]
        known.nodes[node.id] = replace(node, set_labels=(("price", "8"),))
        for id in ("j1_3", "j2_1") if hours else ():
            allocation = Allocation(
                job=JobId(id),
                attempt=AttemptNumber(1),
                seat=seat,
                state=SeatState.HELD,
                placed_at=(TODAY + 0.5) * DAY_SECONDS - hours * 3600.0,
            )
            known.jobs[allocation.job] = replace(
                known.jobs[JobId("j1_3")], id=allocation.job
            )
            known.allocations[allocation.key] = allocation
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


def test_what_replicas_hold_now_costs_too() -> None:
    assert cost(OWN, COUNTED, [], hours=0.5) == pytest.approx(4.0 / 0.4)


@pytest.mark.parametrize(("counted", "records"), [([], RECORDS), (COUNTED, [])])
def test_without_tokens_or_without_a_price_there_is_no_cost(
    counted: list[GatewayCount], records: list[UsageRecord]
) -> None:
    assert cost(OWN, counted, records) is None
