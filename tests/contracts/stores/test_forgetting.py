"""Jobs that are forgotten: nothing of them stays, and nothing else goes."""

from dataclasses import replace

import pytest

from corral.domain.attempt import SeatState
from corral.domain.errors import InvariantBroken
from corral.domain.ids import Sequence, job_id
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.world import Changes
from corral.ports.store import Store
from tests.contracts.stores.conftest import Place
from tests.store.rows import (
    ANN,
    allocation,
    attempt,
    event,
    job,
    node,
    receipt,
    reservation,
    save,
    spec,
    submit,
    told,
)

J1, J2, J3 = job_id(1), job_id(2), job_id(3)


def ended(number: int) -> Changes:
    """A job that is over, with all that one can have."""
    id = job_id(number)
    return Changes(
        jobs=(replace(job(number, JobState.DONE), since=number * 10.0),),
        attempts=(attempt(id), attempt(id, 2)),
        allocations=(allocation(id, 1, "n1", SeatState.RELEASED),),
        nodes=(node("n1"),),
        saves=(save(id, 5), save(id, 6)),
        receipts=(receipt(id),),
        events=(event("one", id), event("two"), event("three", id)),
        reservations=(reservation(id, ended="placed"),),
    )


async def all_of(store: Store, one: Job) -> list[object]:
    id = one.id
    rows = [await store.attempts(id), await store.receipts(id), await store.saves(id)]
    return [await store.job(id), *rows, await store.events(after=0, job=id, limit=9)]


def test_nothing_of_a_forgotten_job_stays_and_the_others_do(place: Place) -> None:
    async def scenario(store: Store) -> None:
        world = await store.lead()
        for number in (1, 2):
            await store.commit(world.term, ended(number))
            world.apply(ended(number))
        await store.tell([told(J1), told(J2)])
        other = await all_of(store, job(2))
        changes = Changes(forgotten=(J1,))
        assert changes
        await store.commit(world.term, changes)
        world.apply(changes)
        assert await all_of(store, job(1)) == [None, [], [], [], []]
        assert await all_of(store, job(2)) == other
        assert [one.text for one in await store.events(after=1, job=None, limit=9)] == [
            "two", "one", "two", "three",
        ]  # fmt: skip
        assert [
            one.number for one in await store.events(after=2, job=None, limit=2)
        ] == [4, 5]
        assert [one.id for one in await store.jobs(final=True, limit=9)] == [J2]
        found = await store.lead()
        assert found == replace(world, term=found.term)
        assert found.ended_at == {J2: 20.0}
        new = await store.commit(found.term, Changes(events=(event("four"),)))
        assert [one.number for one in new] == [7]

    place.run(scenario)


@pytest.mark.parametrize(
    "changes",
    [
        Changes(forgotten=(J3,)),
        Changes(forgotten=(job_id(9),)),
        Changes(forgotten=(J2,)),
        Changes(forgotten=(J1,), jobs=(replace(job(1, JobState.DONE), since=10.0),)),
        Changes(forgotten=(J1,), receipts=(receipt(J1),)),
    ],
    ids=["unfinished", "unknown", "holding", "written", "referred to"],
)
def test_what_is_not_over_cannot_be_forgotten(place: Place, changes: Changes) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        await store.commit(term, ended(1))
        held = (allocation(J2, 1, "n1", SeatState.UNREACHABLE),)
        await store.commit(term, replace(ended(2), allocations=held))
        await store.commit(term, Changes(jobs=(job(3),)))
        before = [await all_of(store, job(number)) for number in (1, 2, 3)]
        with pytest.raises(InvariantBroken):
            await store.commit(term, changes)
        assert [await all_of(store, job(number)) for number in (1, 2, 3)] == before

    place.run(scenario)


def test_the_key_of_a_forgotten_submission_still_makes_no_second_one(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        world = await store.lead()
        first = await store.add_request(submit("a", "k"), by=ANN, at=1.0)
        await store.commit(world.term, replace(ended(1), granted=Sequence(1)))
        await store.commit(world.term, Changes(forgotten=(J1,)))
        assert await store.add_request(submit("a", "k"), by=ANN, at=2.0) == first
        assert await store.request_of_key("k", by=ANN) == first

    place.run(scenario)


def test_the_snapshots_in_use_are_those_of_recorded_jobs(place: Place) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        digests = ("a" * 64, "b" * 64, "a" * 64)
        rows = [
            job(number, JobState.DONE, spec=spec("x", workdir=digest))
            for number, digest in enumerate(digests, start=1)
        ]
        await store.commit(term, Changes(jobs=(*rows, job(9))))
        assert await store.workdirs() == set(digests)
        await store.commit(term, Changes(forgotten=(J1, J2)))
        assert await store.workdirs() == {digests[2]}

    place.run(scenario)
