"""Specs are stored once a submission: an array of large jobs costs what one of them
does."""

import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.domain.ids import JobId, Sequence, UserName, job_id
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.quota import UserHoldings
from corral.domain.requests import SetJob, StoredRequest, Submit
from corral.domain.spec_content import LARGE_CHARACTERS
from corral.domain.users import AuditEntry
from corral.domain.world import Changes
from corral.ports.store import Store
from corral.reconcile.apply_requests import ids_of
from corral.store.sqlite import SqliteStore
from corral.store.submissions import folded, unfolded
from tests.contracts.stores.conftest import Place
from tests.store.rows import ANN, spec, submit

LARGE = 100_000
COUNT = 40
ENTRY = AuditEntry(at=1.0, by=ANN, token=None, what="workdir.upload", on="ab")


def large(name: str = "sweep", **changes: Any) -> JobSpec:
    return replace(spec(name, **changes), env=(("A", "x" * LARGE),))


def array(count: int = COUNT) -> tuple[JobSpec, ...]:
    """Each spec has objects of its own, as of a careless caller."""
    return tuple(
        large(f"sweep_{index}", array_index=index, setup=f"{'pip install torch'}")
        for index in range(count)
    )


def jobs_of(
    request: StoredRequest, state: JobState = JobState.QUEUED
) -> tuple[Job, ...]:
    assert isinstance(request.asked, Submit)
    return tuple(
        Job(
            id=id,
            spec=one,
            owner=request.by,
            submitted=request.sequence,
            submitted_at=request.at,
            state=state,
            since=request.at,
            array=job_id(request.sequence),
        )
        for id, one in zip(ids_of(request), request.asked.specs, strict=True)
    )


async def granted(store: Store, asked: Submit) -> Mapping[JobId, Job]:
    """The unfinished jobs as the next head loads them."""
    world = await store.lead()
    await store.add_request(asked, by=ANN, at=1.0)
    (request,) = await store.requests_after(0)
    await store.commit(
        world.term, Changes(jobs=jobs_of(request), granted=request.sequence)
    )
    return (await store.lead()).jobs


def test_a_large_array_comes_back_as_asked_and_shares_its_fields(place: Place) -> None:
    asked = Submit(specs=array(), key="k")

    async def scenario(store: Store) -> None:
        first = await store.add_request(asked, by=ANN, at=1.0)
        assert first.asked == asked
        (request,) = await store.requests_after(0)
        assert request == first
        world = await store.lead()
        await store.commit(
            world.term, Changes(jobs=jobs_of(request), granted=request.sequence)
        )
        loaded = (await store.lead()).jobs
        assert [job.spec for job in loaded.values()] == list(asked.specs)
        assert await store.job(JobId("j1_7")) == loaded[JobId("j1_7")]
        assert await store.named("sweep_7") == loaded[JobId("j1_7")]
        assert await store.array("sweep") == list(loaded.values())
        assert await store.request_of_key("k", by=ANN) == request

    place.run(scenario)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_loaded_jobs_share_one_copy_of_what_is_large(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if kind == "sqlite":
        place = Place(
            lambda **settings: SqliteStore(tmp_path / "corral.db", **settings)
        )
    else:
        from tests.contracts.stores.conftest import postgres_opener

        place = Place(postgres_opener(request.getfixturevalue("postgres").database()))
    loaded = place.run(lambda store: granted(store, Submit(specs=array(), key="")))
    assert len({id(job.spec.env[0][1]) for job in loaded.values()}) == 1


def test_the_store_grows_by_one_spec_and_not_by_one_a_job(tmp_path: Path) -> None:
    path = tmp_path / "corral.db"
    Place(lambda **settings: SqliteStore(path, **settings)).run(
        lambda store: granted(store, Submit(specs=array(300), key="k"))
    )
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sizes = [
            raw.execute(
                f"SELECT coalesce(sum(length(record)), 0) FROM {table}"
            ).fetchone()[0]
            for table in ("wishes", "jobs", "specs")
        ]
    raw.close()
    assert sizes[0] < 10_000  # an array of any size is one spec and its indices
    assert sizes[1] < 300 * 2_500
    assert LARGE < sizes[2] < LARGE + 5_000


def test_a_changed_job_keeps_its_large_fields(place: Place) -> None:
    async def scenario(store: Store) -> None:
        loaded = await granted(store, Submit(specs=array(2), key=""))
        job = loaded[JobId("j1_1")]
        changed = replace(
            job, spec=SetJob(job=job.id, name="other", priority=5).of(job.spec)
        )
        world = await store.lead()
        await store.commit(world.term, Changes(jobs=(changed,)))
        found = (await store.lead()).jobs[JobId("j1_1")]
        assert found == changed
        assert found.spec.env == array(2)[1].env

    place.run(scenario)


def test_large_fields_go_with_the_last_job_of_their_submission(place: Place) -> None:
    async def scenario(store: Store) -> None:
        loaded = await granted(store, Submit(specs=array(2), key="k"))
        assert (await store.holdings(ANN)).spec_bytes > LARGE
        assert await store.holdings(UserName("bob")) == UserHoldings()
        over = tuple(replace(job, state=JobState.DONE) for job in loaded.values())
        world = await store.lead()
        await store.commit(world.term, Changes(jobs=over, forgotten=()))
        await store.commit(world.term, Changes(forgotten=(over[0].id,)))
        kept = await store.job(over[1].id)
        assert kept is not None
        assert len(kept.spec.env[0][1]) == LARGE
        await store.commit(world.term, Changes(forgotten=(over[1].id,)))
        assert (await store.holdings(ANN)).spec_bytes == 0
        again = await store.add_request(Submit(specs=array(2), key="k"), by=ANN, at=9.0)
        assert again.sequence == 1
        assert ids_of(again) == ("j1_0", "j1_1")

    place.run(scenario)


def test_a_submission_that_brought_no_job_leaves_nothing_for_the_next_head(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        world = await store.lead()
        await store.add_request(Submit(specs=array(2), key=""), by=ANN, at=1.0)
        await store.commit(world.term, Changes(granted=Sequence(1)))
        await store.lead()
        assert (await store.holdings(ANN)).spec_bytes == 0

    place.run(scenario)


def test_what_is_stored_for_a_user_is_counted(place: Place) -> None:
    async def scenario(store: Store) -> None:
        await store.put_secret("A", b"12345", by=ANN, at=1.0)
        await store.put_secret("B", b"123", by=ANN, at=1.0)
        await store.add_upload("ab", 70, by=ANN, at=1.0, entry=ENTRY)
        await store.add_upload("cd", 5, by=ANN, at=1.0, entry=ENTRY)
        await store.add_upload("ab", 70, by=UserName("bob"), at=2.0, entry=ENTRY)
        assert len(await store.audit(limit=9)) == 2
        expected = UserHoldings(upload_bytes=75, secrets=2, secret_bytes=8)
        assert await store.holdings(ANN) == expected
        assert await store.holdings(UserName("bob")) == UserHoldings()
        await store.drop_uploads(["ab", "zz"])
        assert (await store.holdings(ANN)).upload_bytes == 5

    place.run(scenario)


def test_jobs_of_several_specs_are_told_apart() -> None:
    """Arrays that follow one another, jobs beside them, and indices in any order."""
    one, two = array(3), tuple(replace(job, array_place=1, nodes=1) for job in array(3))
    odd = (spec("lone"), large("alone"), replace(one[2]), replace(one[0]), spec("x_5"))
    asked = Submit(specs=(*one, *two, *odd), key="k", held=True)
    submission, contents = folded(asked)
    assert unfolded(submission, dict(enumerate(contents))) == asked
    assert [fold.indices for fold in submission.folds] == [
        (0, 1, 2), (0, 1, 2), (), (), (2,), (0,), (),
    ]  # fmt: skip
    assert len(contents) == 2


def test_a_small_spec_is_stored_whole_with_its_job() -> None:
    submission, contents = folded(submit("small"))
    assert contents == []
    assert not submission.has_contents
    just = replace(spec("large"), env=(("A", "x" * LARGE_CHARACTERS),))
    assert len(folded(Submit(specs=(just,), key=""))[1]) == 1
