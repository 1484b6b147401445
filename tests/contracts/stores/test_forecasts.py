"""What a head learns from: how long jobs have run, and what waiting ones were told."""

from dataclasses import replace

from corral.domain.ids import job_id
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.run_history import stem_of
from corral.domain.world import Changes
from corral.ports.store import Store
from tests.contracts.stores.conftest import Place
from tests.store.rows import attempt, job, spec, told

J1, J2, J3, J9 = job_id(1), job_id(2), job_id(3), job_id(9)


def over(number: int, state: JobState = JobState.DONE) -> Job:
    return replace(job(number, state, spec=spec(f"train-{number}")), ended_at=99.0)


def test_runs_are_what_the_attempts_of_ended_jobs_took_together(place: Place) -> None:
    async def scenario(store: Store) -> None:
        changes = Changes(
            jobs=(
                over(1),
                over(2, JobState.CANCELLED),
                job(3, JobState.RUNNING),
                over(4),
            ),
            attempts=(
                attempt(J1, 1, ended_at=15.0),
                attempt(J1, 2, ended_at=7.5),
                attempt(J2, 1, ended_at=6.0),
                attempt(J3, 1, ended_at=6.0),
            ),
        )
        await store.commit((await store.lead()).term, changes)
        found = await store.runs(limit=9)
        assert [(one.job, one.seconds, one.stem) for one in found] == [
            (J2, 1.0, "train"),
            (J1, 12.5, "train"),
        ]
        assert [one.job for one in await store.runs(limit=3)] == [J2, J1]
        assert [one.job for one in await store.runs(limit=2)] == [J2]

    place.run(scenario)


def test_a_job_has_one_row_of_what_it_was_told_and_the_newest_stands(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        changes = Changes(jobs=tuple(job(number) for number in (1, 2, 3)))
        await store.commit((await store.lead()).term, changes)
        await store.tell([told(J1, 5.0), told(J2, 3.0), told(J9, 4.0)])
        assert [one.job for one in await store.told(limit=9)] == [J2, J1]
        await store.tell([told(J2, 3.0, waited_seconds=61.5), told(J3, 4.0)], void=[J1])
        assert await store.told(limit=9) == [
            told(J2, 3.0, waited_seconds=61.5),
            told(J3, 4.0),
        ]
        assert [one.job for one in await store.told(limit=1)] == [J3]

    place.run(scenario)


def test_what_was_told_is_kept_by_the_next_head_and_goes_with_its_job(
    place: Place,
) -> None:
    async def first(store: Store) -> None:
        changes = Changes(jobs=(over(1), over(2)))
        await store.commit((await store.lead()).term, changes)
        await store.tell([told(J1), told(J2)])

    async def second(store: Store) -> None:
        world = await store.lead()
        await store.commit(world.term, Changes(forgotten=(J1,)))
        assert [one.job for one in await store.told(limit=9)] == [J2]

    place.run(first)
    place.run(second)


def test_kin_are_told_by_their_names_without_numbers() -> None:
    assert stem_of("train-17") == stem_of("train-18") == "train"
    assert stem_of("lr0.1_seed3") == stem_of("lr0.2_seed44")
    assert stem_of("17") == "17"
