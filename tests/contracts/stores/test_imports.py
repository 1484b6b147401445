"""Jobs of another system are kept once, and are learned from like one's own."""

from dataclasses import replace

from corral.domain.ids import job_id
from corral.domain.job_states import JobState
from corral.domain.users import AuditEntry
from corral.domain.world import Changes
from corral.ports.store import Store
from tests.contracts.stores.conftest import Place
from tests.store.rows import ANN, attempt, imported, job, spec

ENTRY = AuditEntry(at=3.0, by=ANN, token=None, what="history.import", on="sacct")
ROWS = [imported("1", 60.0), imported("2", 80.0), imported("3", 60.0, seconds=20.0)]


def test_what_is_imported_twice_is_kept_once_and_as_it_was_first(place: Place) -> None:
    async def first(store: Store) -> None:
        await store.lead()
        assert await store.keep_imported(ROWS[:2], entry=ENTRY) == 2

    async def second(store: Store) -> None:
        again = [replace(ROWS[0], state="FAILED"), ROWS[2], ROWS[2]]
        ids = [row.id for row in again] + ["sacct:9"]
        assert await store.known_imports(ids) == 1
        assert await store.keep_imported(again, entry=ENTRY) == 1
        assert await store.known_imports(ids) == 2
        assert await store.imported(limit=9) == [ROWS[1], ROWS[2], ROWS[0]]
        assert [one.what for one in await store.audit(limit=9)] == [
            "history.import"
        ] * 2

    place.run(first)
    place.run(second)


def test_they_are_listed_from_the_last_to_end_in_pages(place: Place) -> None:
    async def scenario(store: Store) -> None:
        await store.keep_imported(ROWS, entry=ENTRY)
        page = await store.imported(limit=2)
        assert page == [ROWS[1], ROWS[2]]
        assert await store.imported(limit=2, before=page[-1].id) == [ROWS[0]]
        assert await store.imported(limit=2, before=ROWS[0].id) == []
        assert await store.imported(limit=2, before="sacct:gone") == []
        assert await store.imported(limit=0) == []

    place.run(scenario)


def test_they_follow_ones_own_runs_as_far_as_there_is_room(place: Place) -> None:
    async def scenario(store: Store) -> None:
        own = replace(job(1, JobState.DONE, spec=spec("own")), ended_at=99.0)
        tried = attempt(job_id(1), 1, ended_at=15.0)
        changes = Changes(jobs=(own,), attempts=(tried,))
        await store.commit((await store.lead()).term, changes)
        await store.keep_imported(ROWS, entry=ENTRY)
        found = await store.runs(limit=3)
        assert [one.job for one in found] == ["j1", "sacct:2", "sacct:3"]
        assert (found[1].stem, found[1].user, found[1].seconds) == ("train", ANN, 10.0)
        assert [one.job for one in await store.runs(limit=1)] == ["j1"]

    place.run(scenario)
