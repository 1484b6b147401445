"""Commits: whole or nothing, under the term, and never against a final state."""

import asyncio
from dataclasses import replace

import pytest

from corral.domain.attempt import SeatState
from corral.domain.errors import InvariantBroken, TermLost
from corral.domain.ids import AttemptNumber, NodeId, Sequence, ServiceName, job_id
from corral.domain.job_states import FINAL, JobState
from corral.domain.receipt import ReceiptKind
from corral.domain.service import ServiceState
from corral.domain.world import Changes, World
from corral.ports.store import Store
from tests.contracts.stores.conftest import Place
from tests.store.rows import (
    ANN,
    allocation,
    attempt,
    debt,
    event,
    gateway_count,
    job,
    node,
    receipt,
    reservation,
    save,
    service,
    spent,
    submit,
    tree,
    use,
)

J1, J2 = job_id(1), job_id(2)


def everything() -> Changes:
    return Changes(
        jobs=(
            job(1, JobState.RUNNING, attempt=AttemptNumber(2)),
            job(2, JobState.DONE),
            job(3),
        ),
        attempts=(attempt(J1, 2), attempt(J1, 1), attempt(J2)),
        allocations=(
            allocation(J1, 2),
            allocation(J1, 2, "n2", SeatState.UNREACHABLE),
            allocation(J1, 1, "n1", SeatState.RELEASED),
            allocation(J2, 1, "n1", SeatState.STOPPING),
        ),
        nodes=(node("n1"), node("n2", gpus=0)),
        saves=(
            save(J1, 20, 2),
            save(J1, 10),
            save(J1, 15, quarantined="torn"),
            save(J2, 5),
        ),
        receipts=(receipt(J1), receipt(J1, kind=ReceiptKind.PREEMPTION)),
        events=(event("one", J1), event("two")),
        queues=tree(),
        uses=(use(), use("below")),
        spent=(spent(), spent("below")),
        debts=(debt(), debt("below")),
        reservations=(reservation(J1), reservation(J2, ended="placed")),
        services=(service(8), service(9, "old", state=ServiceState.STOPPED)),
        gateway_counts=(gateway_count(), gateway_count("p2"), gateway_count("p2", "x")),
    )


def test_a_head_that_leads_finds_what_is_not_over(place: Place) -> None:
    async def write(store: Store) -> World:
        world = await store.lead()
        await store.commit(world.term, everything())
        return world

    async def scenario(store: Store) -> World:
        return await store.lead()

    before = place.run(write)
    found = place.run(scenario)
    assert (found.cluster, found.term, found.granted) == (before.cluster, 2, 0)
    assert found.jobs == {
        J1: job(1, JobState.RUNNING, attempt=AttemptNumber(2)),
        job_id(3): job(3),
    }
    assert list(found.jobs) == [J1, job_id(3)]
    assert found.ended == {J2: JobState.DONE}
    assert found.attempts == {J1: attempt(J1, 2)}
    assert found.saves == {J1: (save(J1, 10), save(J1, 20, 2))}
    assert {key[1:] for key in found.allocations} == {(2, "n1"), (2, "n2"), (1, "n1")}
    assert (J1, 1, "n1") not in found.allocations
    assert found.nodes == {"n1": node("n1"), "n2": node("n2", gpus=0)}
    assert found.queues == tree()
    assert found.uses == {(one.queue, one.user): one for one in (use(), use("below"))}
    assert found.spent == {one.queue: one for one in (spent(), spent("below"))}
    assert found.debts == {one.queue: one for one in (debt(), debt("below"))}
    assert found.reservations == {J1: reservation(J1)}
    assert found.services == {"chat": service(8)}
    assert set(found.gateway_counts) == {("p1", "chat"), ("p2", "chat"), ("p2", "x")}
    assert found.gateway_counts["p1", ServiceName("chat")] == gateway_count()


def test_a_fresh_store_has_one_queue(place: Place) -> None:
    async def scenario(store: Store) -> World:
        return await store.lead()

    assert [queue.name for queue in place.run(scenario).queues.queues] == ["default"]


def test_a_row_replaces_the_one_of_its_key(place: Place) -> None:
    async def scenario(store: Store) -> None:
        world = await store.lead()
        await store.commit(world.term, everything())
        renewed = Changes(
            jobs=(job(3, JobState.STARTING),),
            attempts=(attempt(J1, 2, last_step=7),),
            allocations=(allocation(J1, 2, "n2", SeatState.RELEASED),),
            nodes=(node("n2", gpus=4),),
            saves=(save(J1, 10, quarantined="bit flip"),),
            receipts=(receipt(J1, resumed_from_step=20),),
            queues=tree(gpus=4),
            uses=(use(gpu_seconds=7.25),),
            spent=(spent(demoted=True),),
            debts=(debt(rate=-1.5),),
            reservations=(reservation(J1, ended="spared"),),
            services=(service(8, state=ServiceState.STOPPED), service(10)),
            gateway_counts=(gateway_count(output=9),),
            forgotten_processes=("p2", "unknown"),
        )
        await store.commit(world.term, renewed)
        found = await store.lead()
        assert (
            found.jobs[job_id(3)]
            == job(3, JobState.STARTING)
            == await store.job(job_id(3))
        )
        assert await store.attempts(J1) == [attempt(J1, 1), attempt(J1, 2, last_step=7)]
        assert (J1, 2, "n2") not in found.allocations
        assert found.nodes["n2"] == node("n2", gpus=4)  # type: ignore[index]
        assert found.saves == {J1: (save(J1, 20, 2),)}
        assert [one.quarantined for one in await store.saves(J1)] == [
            "bit flip",
            "torn",
            "",
        ]
        assert found.queues == tree(gpus=4)
        assert found.uses[use().queue, ANN] == use(gpu_seconds=7.25)
        assert found.spent[spent().queue].demoted
        assert found.debts[debt().queue] == debt(rate=-1.5)
        assert not found.reservations
        assert found.services == {"chat": service(10)}
        assert [*found.gateway_counts.values()] == [gateway_count(output=9)]
        assert [one.id for one in await store.services(limit=9)] == ["j10", "j9", "j8"]
        assert await store.services(limit=1) == [service(10)]
        first, second = await store.receipts(J1)
        assert (first.resumed_from_step, second.kind) == (20, "preemption")

    place.run(scenario)


def test_the_world_in_memory_is_the_world_that_the_next_head_finds(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        world = await store.lead()
        late = Changes(attempts=(attempt(J2, 2), attempt(J1, 1)), saves=(save(J2, 9),))
        torn = Changes(
            saves=tuple(save(J1, s, n, quarantined="x") for s, n in ((10, 1), (20, 2)))
        )
        over = Changes(
            jobs=(job(3, JobState.CANCELLED),), queues=tree(2), uses=(use(), use("a"))
        )
        for changes in (everything(), late, torn, over):
            await store.commit(world.term, changes)
            world.apply(changes)
        found = await store.lead()
        world.term = found.term
        assert found == world

    place.run(scenario)


@pytest.mark.parametrize("final", sorted(FINAL))
@pytest.mark.parametrize("other", [*sorted(FINAL), JobState.QUEUED, JobState.RUNNING])
def test_a_final_state_never_changes(
    place: Place, final: JobState, other: JobState
) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        await store.commit(term, Changes(jobs=(job(1, final),)))
        changed = Changes(jobs=(job(2), job(1, other, exit_code=3)), events=(event(),))
        if final == other:
            await store.commit(term, changed)
            assert await store.job(J1) == job(1, final, exit_code=3)
            return
        with pytest.raises(InvariantBroken, match="final"):
            await store.commit(term, changed)
        assert await store.job(J1) == job(1, final)
        assert await store.job(J2) is None
        assert await store.events(after=0, job=None, limit=9) == []

    place.run(scenario)


def test_a_final_state_does_not_change_within_one_commit_either(place: Place) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        with pytest.raises(InvariantBroken):
            await store.commit(term, Changes(jobs=(job(1, JobState.DONE), job(1))))
        assert await store.job(J1) is None

    place.run(scenario)


@pytest.mark.parametrize(
    "orphan",
    [
        Changes(attempts=(attempt(J1),)),
        Changes(allocations=(allocation(J1),)),
        Changes(saves=(save(J1, 1),)),
        Changes(receipts=(receipt(J1),)),
        Changes(reservations=(reservation(J1),)),
    ],
    ids=["attempt", "allocation", "save", "receipt", "reservation"],
)
def test_nothing_is_written_of_a_job_that_was_never_recorded(
    place: Place, orphan: Changes
) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        with pytest.raises(InvariantBroken, match="not in the store"):
            await store.commit(term, replace(orphan, jobs=(job(2),)))
        assert await store.job(J2) is None
        await store.commit(term, replace(orphan, jobs=(job(1),)))

    place.run(scenario)


@pytest.mark.parametrize("granted", [3, 0])
def test_requests_are_granted_neither_unseen_nor_backwards(
    place: Place, granted: int
) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        for _ in range(2):
            await store.add_request(submit(), by=ANN, at=1.0)
        await store.commit(term, Changes(granted=Sequence(1)))
        with pytest.raises(InvariantBroken):
            await store.commit(term, Changes(granted=Sequence(granted), jobs=(job(1),)))
        assert await store.job(J1) is None
        assert [request.sequence for request in await store.requests_after(1)] == [2]

    place.run(scenario)


def test_a_head_leads_again_only_while_no_other_has_led(place: Place) -> None:
    async def scenario(store: Store) -> None:
        other = place.open()
        old = await store.lead()
        again = await store.lead(known=old.term)
        assert again.term == old.term + 1
        new = await other.lead()
        with pytest.raises(TermLost):
            await store.lead(known=again.term)
        assert len(await other.commit(new.term, Changes(events=(event(),)))) == 1
        assert (await store.lead(known=new.term)).term == new.term + 1
        await other.close()

    place.run(scenario)


def test_a_head_whose_term_is_over_writes_nothing(place: Place) -> None:
    async def scenario(store: Store) -> None:
        other = place.open()
        old = await store.lead()
        new = await other.lead()
        assert (old.cluster, old.term) == (new.cluster, new.term - 1)
        for term in (old.term, new.term + 1):
            with pytest.raises(TermLost):
                await store.commit(term, Changes(jobs=(job(1),), events=(event(),)))
        assert await other.job(J1) is None
        assert len(await other.commit(new.term, Changes(events=(event(),)))) == 1
        await other.close()

    place.run(scenario)


def test_a_commit_that_fails_fails_none_of_those_beside_it(place: Place) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        await store.commit(term, Changes(jobs=(job(1, JobState.DONE),)))
        tries = [
            store.commit(term, Changes(jobs=(job(i),), events=(event(),)))
            for i in range(1, 9)
        ]
        stale = store.commit(term - 1, Changes(jobs=(job(9),)))
        answers = await asyncio.gather(*tries, stale, return_exceptions=True)
        assert isinstance(answers[0], InvariantBroken)
        assert isinstance(answers[-1], TermLost)
        assert [found[0].number for found in answers[1:-1]] == list(range(1, 8))  # type: ignore[index]
        assert sorted((await store.lead()).jobs) == [f"j{i}" for i in range(2, 9)]

    place.run(scenario)


def test_a_node_that_is_removed_is_unknown_to_the_next_head(place: Place) -> None:
    async def write(store: Store) -> World:
        world = await store.lead()
        await store.commit(
            world.term, Changes(nodes=(node("n1"), node("n2"), node("n3")))
        )
        changes = Changes(
            nodes=(node("n3", gpus=4),), removed=(NodeId("n2"), NodeId("n9"))
        )
        await store.commit(world.term, changes)
        return await store.lead()

    assert place.run(write).nodes == {"n1": node("n1"), "n3": node("n3", gpus=4)}
