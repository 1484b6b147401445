"""Batches and files of users, on every store."""

from dataclasses import replace

from corral.domain.batch import (
    BatchFault,
    BatchId,
    BatchStatus,
    FileId,
    LineCounts,
)
from corral.domain.ids import TokenId, UserName
from corral.domain.users import AuditEntry, Role, User
from corral.ports.store import Store
from tests.contracts.stores.conftest import Place
from tests.store.rows import ANN, batch, stored_file

BOB = UserName("bob")
ENTRY = AuditEntry(at=1.0, by=ANN, token=TokenId("t1"), what="file.add", on="f1")


def test_a_file_is_read_back_until_it_is_removed(place: Place) -> None:
    async def scenario(store: Store) -> None:
        await store.put_file(stored_file(), entry=ENTRY)
        await store.put_file(stored_file("f2", at=2.0))
        await store.put_file(stored_file("f3", owner=BOB))
        assert await store.file(FileId("f1")) == stored_file()
        assert [row.id for row in await store.files(owner=ANN)] == ["f2", "f1"]
        assert len(await store.files()) == 3
        assert (await store.holdings(ANN)).upload_bytes == 200
        assert await store.drop_file(FileId("f1"))
        assert not await store.drop_file(FileId("f1"))
        assert await store.file(FileId("f1")) is None
        assert [row.what for row in await store.audit(limit=9)] == ["file.add"]

    place.run(scenario)


def test_a_batch_is_open_until_it_is_over(place: Place) -> None:
    done = replace(
        batch("b2", at=2.0),
        status=BatchStatus.COMPLETED,
        counts=LineCounts(total=2, completed=1, failed=1),
        faults=(BatchFault("x", "y", 3, "z"),),
    )

    async def scenario(store: Store) -> None:
        await store.put_batch(batch(), entry=ENTRY)
        await store.put_batch(replace(done, status=BatchStatus.IN_PROGRESS))
        assert [row.id for row in await store.open_batches()] == ["b1", "b2"]
        await store.put_batch(done)
        assert await store.open_batches() == [batch()]
        assert await store.batch(BatchId("b2")) == done
        assert [row.id for row in await store.batches(owner=ANN)] == ["b2", "b1"]
        assert await store.batches(owner=BOB) == []

    place.run(scenario)


def test_old_batches_that_are_over_are_removed(place: Place) -> None:
    over = replace(batch("b2"), status=BatchStatus.CANCELLED)

    async def scenario(store: Store) -> None:
        for row in (batch(), over, replace(over, id=BatchId("b3"), created_at=5.0)):
            await store.put_batch(row)
        assert await store.drop_batches(created_before=4.0) == 1
        assert {row.id for row in await store.batches()} == {"b1", "b3"}

    place.run(scenario)


def test_the_files_and_batches_of_a_user_are_removed_with_the_user(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        for name in (ANN, BOB):
            user = User(name=name, role=Role.ADMIN, created_at=1.0)
            await store.add_user(user, entry=ENTRY)
            await store.put_file(stored_file(f"of-{name}", name))
            await store.put_batch(batch(f"of-{name}", name))
        await store.remove_user(BOB, at=2.0, entry=ENTRY)
        assert {row.owner for row in await store.files()} == {ANN}
        assert {row.owner for row in await store.batches()} == {ANN}

    place.run(scenario)
