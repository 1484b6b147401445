"""The ledger's rows: they add up, and the sums of days outlive jobs."""

from dataclasses import replace

from corral.domain.ids import job_id
from corral.domain.job_states import JobState
from corral.domain.ledger import AMOUNTS, UsageAmounts
from corral.domain.world import Changes
from corral.ports.store import Store
from tests.contracts.stores.conftest import Place
from tests.store.rows import account, job

J1, J2 = job_id(1), job_id(2)


async def days(store: Store) -> list[tuple[int, float, float]]:
    rows = await store.days(first=0, last=9)
    return [
        (one.day, one.amounts.allocated_gpu_seconds, one.amounts.money) for one in rows
    ]


def test_what_commits_bring_is_added_by_job_and_by_day(place: Place) -> None:
    async def scenario(store: Store) -> None:
        world = await store.lead()
        over = job(2, JobState.DONE)
        first = (account(J1), account(J1), account(J1, number=2), account(J2, day=4))
        await store.commit(world.term, Changes(jobs=(job(1), over), accounts=first))
        await store.commit(
            world.term, Changes(accounts=(account(J1, used_gpu_seconds=7.0),))
        )
        each = await store.accounts(first=0, last=9)
        assert [(row.job, row.attempt, row.day) for row in each] == [
            (J1, 1, 3),
            (J1, 2, 3),
            (J2, 1, 4),
        ]
        assert each[0].amounts.allocated_gpu_seconds == 120.0
        assert each[0].amounts.used_gpu_seconds == 7.0
        assert await store.accounts(first=4, last=4) == [each[2]]
        assert await store.accounts(first=0, last=9, job=J1) == each[:2]
        assert await store.accounts(first=0, last=2) == []
        assert await days(store) == [(3, 160.0, 0.4), (4, 40.0, 0.1)]

    place.run(scenario)


def test_a_day_keeps_what_forgotten_jobs_held(place: Place) -> None:
    async def scenario(store: Store) -> None:
        world = await store.lead()
        over = replace(job(1, JobState.DONE), since=10.0)
        await store.commit(world.term, Changes(jobs=(over,), accounts=(account(J1),)))
        await store.commit(world.term, Changes(forgotten=(J1,)))
        assert await store.accounts(first=0, last=9) == []
        assert await days(store) == [(3, 40.0, 0.1)]
        # of a late sample
        await store.commit(world.term, Changes(accounts=(account(J1),)))
        assert await store.accounts(first=0, last=9) == []
        assert await days(store) == [(3, 80.0, 0.2)]

    place.run(scenario)


def test_a_day_is_the_sum_of_its_jobs_amount_by_amount(place: Place) -> None:
    whole = {name: float(place) for place, name in enumerate(AMOUNTS, start=1)}

    async def scenario(store: Store) -> None:
        world = await store.lead()
        rows = tuple(
            replace(account(id), amounts=UsageAmounts(**whole)) for id in (J1, J2)
        )
        await store.commit(world.term, Changes(jobs=(job(1), job(2)), accounts=rows))
        (day,) = await store.days(first=3, last=3)
        assert day.amounts == rows[0].amounts.times(2.0)
        assert (day.job, day.name, day.attempt) == (None, "", 0)

    place.run(scenario)


def test_accounts_alone_are_a_commit() -> None:
    assert Changes(accounts=(account(J1),))
