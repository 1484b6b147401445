"""Requests: durable, numbered, and harmless to repeat."""

import asyncio

from corral.domain.active_checks import CheckKind
from corral.domain.ids import JobId, NodeId, ServiceName, UserName
from corral.domain.requests import (
    ApplyService,
    Asked,
    Cancel,
    CheckNodes,
    CordonSuspects,
    Resume,
    RollBackService,
    ScaleService,
    SetJob,
    SetLabels,
    SetNode,
    StopService,
    Suspend,
)
from corral.domain.world import Changes
from corral.ports.store import Store
from tests.contracts.stores.conftest import Place
from tests.store.rows import ANN, service_spec, submit

BOB = UserName("bob")


def test_requests_come_back_as_asked_in_the_order_of_asking(place: Place) -> None:
    asked: list[Asked] = [
        submit("a", key="k"),
        Cancel(job=JobId("j1")),
        Suspend(job=JobId("j1")),
        Resume(job=JobId("j1")),
        SetJob(job=JobId("j1"), name="other", priority=-3, max_duration_seconds=60.0),
        SetNode(node=NodeId("n1"), to="drain"),
        SetNode(node=NodeId("n1"), to="clear"),
        CordonSuspects(),
        CheckNodes(nodes=(NodeId("n1"),), kinds=(CheckKind.DATA,), paths=("/data",)),
        SetLabels(node=NodeId("n1"), labels=(("rack", None), ("zone", "a"))),
        ApplyService(spec=service_spec(max_replicas=4), key_seed="5eed"),
        ScaleService(service=ServiceName("chat"), min_replicas=0, max_replicas=2),
        RollBackService(service=ServiceName("chat"), revision=1),
        StopService(service=ServiceName("chat")),
    ]

    async def scenario(store: Store) -> None:
        made = [
            await store.add_request(one, by=ANN, at=float(i))
            for i, one in enumerate(asked)
        ]
        assert [request.sequence for request in made] == list(range(1, 15))
        assert [request.asked for request in made] == asked
        assert await store.requests_after(0) == made
        assert await store.requests_after(3) == made[3:]
        assert await store.requests_after(14) == []

    place.run(scenario)


def test_a_repeated_submit_is_answered_with_the_first_request(place: Place) -> None:
    async def scenario(store: Store) -> None:
        first = await store.add_request(submit("a", key="k"), by=ANN, at=1.0)
        assert await store.add_request(submit("b", key="k"), by=ANN, at=2.0) == first
        assert await store.requests_after(0) == [first]

    place.run(scenario)


def test_a_submit_is_found_by_its_users_key_granted_or_not(place: Place) -> None:
    async def scenario(store: Store) -> None:
        assert await store.request_of_key("k", by=ANN) is None
        first = await store.add_request(submit("a", key="k"), by=ANN, at=1.0)
        assert await store.request_of_key("k", by=ANN) == first
        assert await store.request_of_key("k", by=BOB) is None
        await store.commit((await store.lead()).term, Changes(granted=first.sequence))
        assert await store.request_of_key("k", by=ANN) == first
        assert await store.request_of_key("", by=ANN) is None

    place.run(scenario)


def test_a_repeated_submit_is_known_after_it_was_granted_and_after_a_restart(
    place: Place,
) -> None:
    async def before(store: Store) -> int:
        world = await store.lead()
        first = await store.add_request(submit("a", key="k"), by=ANN, at=1.0)
        await store.commit(world.term, Changes(granted=first.sequence))
        return first.sequence

    async def after(store: Store) -> tuple[int, int, int]:
        again = await store.add_request(submit("a", key="k"), by=ANN, at=9.0)
        other = await store.add_request(submit("a", key="k2"), by=ANN, at=9.0)
        return again.sequence, other.sequence, len(await store.requests_after(1))

    assert place.run(before) == 1
    assert place.run(after) == (1, 2, 1)


def test_keys_are_a_users_own_and_an_empty_one_is_none(place: Place) -> None:
    async def scenario(store: Store) -> None:
        await store.add_request(submit("a", key="k"), by=ANN, at=1.0)
        await store.add_request(submit("a", key="k"), by=BOB, at=1.0)
        await store.add_request(submit("a"), by=ANN, at=1.0)
        await store.add_request(submit("a"), by=ANN, at=1.0)
        assert [
            (request.sequence, request.by) for request in await store.requests_after(0)
        ] == [
            (1, ANN),
            (2, BOB),
            (3, ANN),
            (4, ANN),
        ]

    place.run(scenario)


def test_granted_requests_are_asked_for_no_more_and_numbers_go_on(place: Place) -> None:
    async def scenario(store: Store) -> None:
        world = await store.lead()
        for _ in range(3):
            await store.add_request(Cancel(job=JobId("j1")), by=ANN, at=1.0)
        await store.commit(
            world.term, Changes(granted=(await store.requests_after(0))[1].sequence)
        )
        assert [request.sequence for request in await store.requests_after(2)] == [3]
        assert (await store.lead()).granted == 2
        await store.commit(
            world.term + 1, Changes(granted=(await store.requests_after(2))[0].sequence)
        )
        assert (
            await store.add_request(Cancel(job=JobId("j1")), by=ANN, at=1.0)
        ).sequence == 4

    place.run(scenario)


def test_only_the_newest_keys_are_remembered(place: Place) -> None:
    async def scenario(store: Store) -> list[int]:
        world = await store.lead()
        for number in range(6):
            request = await store.add_request(
                submit("a", key=f"k{number}"), by=ANN, at=1.0
            )
        await store.commit(world.term, Changes(granted=request.sequence))
        again = [
            await store.add_request(submit("a", key=f"k{n}"), by=ANN, at=2.0)
            for n in (5, 4, 0)
        ]
        return [request.sequence for request in again]

    assert place.run(scenario, keep_keys=2) == [6, 5, 7]


def test_many_who_ask_at_once_each_get_a_number_of_their_own(place: Place) -> None:
    async def scenario(store: Store) -> None:
        asks = [
            store.add_request(submit(f"job-{i}", key=f"k{i % 150}"), by=ANN, at=1.0)
            for i in range(200)
        ]
        made = await asyncio.gather(*asks)
        assert len({request.sequence for request in made}) == 150
        assert made[150:] == made[:50]
        assert await store.requests_after(0) == made[:150]

    place.run(scenario)
