"""The cluster's key is changed while everything goes on, and wherever a head is cut
short."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from corral.api.job_tokens import job_token, job_tokens
from corral.boot.key_rotation import (
    AUTHORITY,
    CURRENT,
    RETIRED_SECONDS,
    WRAPPED,
    HeadKeys,
)
from corral.boot.secret_encryption import KeyRing, KeyTrouble
from corral.domain.errors import Conflict
from corral.domain.ids import AttemptNumber, JobId, UserName
from corral.domain.users import AuditEntry
from corral.store.memory_store import MemoryStore
from corral.store.sqlite import SqliteStore

ANN = UserName("ann")
DAY = 86400.0
NAMES = "ABC"
JOB = (JobId("j1"), AttemptNumber(1))


class Cut(Exception):
    """The head ends here."""


class CutStore(MemoryStore):
    """Ends the head at one of the writes of a rotation, before it or right after it."""

    cut_at = 0
    after = False
    _writes = 0

    async def _cut(self, write: Awaitable[bool]) -> bool:
        self._writes += 1
        if self._writes != self.cut_at:
            return await write
        if self.after:
            await write
        else:
            asyncio.ensure_future(write).cancel()
        raise Cut

    async def change_agreed(self, *words: Any, **more: Any) -> bool:
        return await self._cut(super().change_agreed(*words, **more))

    async def seal_anew(self, *words: Any, **more: Any) -> bool:
        return await self._cut(super().seal_anew(*words, **more))


def entry() -> AuditEntry:
    return AuditEntry(at=1.0, by=ANN, token=None, what="key.rotate", on="")


class Cluster:
    """Heads on one store, each with a key file of its own."""

    def __init__(self, folder: Path, store: Any = None) -> None:
        self.folder = folder
        self.store = store or MemoryStore()
        self.now = 1_000_000.0

    def head(self, name: str = "a", *, several: bool = True) -> HeadKeys:
        ring = KeyRing.load(self.folder / name)
        return HeadKeys(
            store=self.store, ring=ring, wall=lambda: self.now, several=several
        )

    async def start(self) -> HeadKeys:
        head = self.head()
        await head.begin()
        for name in NAMES:
            sealed = head.ring.seal(name, name.encode())
            await self.store.put_secret(name, sealed, by=ANN, at=1.0)
        authority = b64encode(head.ring.seal(AUTHORITY, b"the authority")).decode()
        await self.store.agree(AUTHORITY, authority)
        return head

    def copy_key(self, name: str) -> None:
        (self.folder / name).write_bytes((self.folder / "a").read_bytes())
        (self.folder / name).chmod(0o600)

    async def check_opens(self, head: HeadKeys) -> None:
        for name in NAMES:
            assert (
                head.ring.open(name, await self.store.secret(name) or b"")
                == name.encode()
            )
        said = await self.store.agreed(AUTHORITY)
        assert head.ring.open(AUTHORITY, b64decode(said or "")) == b"the authority"

    async def check_sealed_by(self, head: HeadKeys) -> None:
        await self.check_opens(head)
        for name in NAMES:
            assert head.ring.is_current(await self.store.secret(name) or b"")
        assert head.ring.is_current(b64decode(await self.store.agreed(AUTHORITY) or ""))


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def scenario(work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await work()

    asyncio.run(run())


def test_everything_is_sealed_anew_and_the_audit_log_has_a_line(
    cluster: Cluster,
) -> None:
    async def work() -> None:
        head = await cluster.start()
        before = head.ring.check
        done = await head.rotate(entry())
        assert (done.sealed, done.unreadable) == (len(NAMES), 0)
        assert done.key == head.ring.check != before
        await cluster.check_sealed_by(cluster.head())
        assert await cluster.store.secrets() == [(name, ANN, 1.0) for name in NAMES]
        assert [one.what for one in await cluster.store.audit(limit=9)] == [
            "key.rotate"
        ] * 2
        assert (cluster.folder / "a").stat().st_mode & 0o777 == 0o600

    scenario(work)


def test_a_store_in_a_file_rotates_as_well(tmp_path: Path) -> None:
    async def work() -> None:
        store = SqliteStore(tmp_path / "corral.db")
        await store.lead()
        cluster = Cluster(tmp_path, store)
        head = await cluster.start()
        await head.rotate(entry())
        await cluster.check_sealed_by(cluster.head())
        await head.rotate(entry())
        await cluster.check_sealed_by(cluster.head(several=False))
        await store.close()

    scenario(work)


def test_tokens_of_jobs_that_ran_are_taken_for_a_while_and_no_new_one_is_made(
    cluster: Cluster,
) -> None:
    async def work() -> None:
        head = await cluster.start()
        token, placed_at = job_token(head.ring, JOB), cluster.now
        cluster.now += 10
        await head.rotate(entry())
        assert job_token(head.ring, JOB) != token
        assert token in job_tokens(head.ring, JOB)
        signed, signature = "job token j1.1", token.rpartition(".")[2]
        assert signature in head.ring.signatures(signed, placed_at)
        assert signature not in head.ring.signatures(signed, cluster.now + 1)
        cluster.now += RETIRED_SECONDS - DAY
        await head.look(leads=True)
        assert token in job_tokens(cluster.head().ring, JOB)
        cluster.now += 2 * DAY
        await head.look(leads=True)
        assert token not in job_tokens(cluster.head().ring, JOB)
        await cluster.check_sealed_by(cluster.head())

    scenario(work)


def test_other_heads_take_the_fresh_key_and_lead_with_it(cluster: Cluster) -> None:
    async def work() -> None:
        head = await cluster.start()
        for name in "bc":
            cluster.copy_key(name)
        living, off = cluster.head("b"), cluster.head("c")
        await living.begin()
        await head.rotate(entry())
        await living.look(leads=False)
        assert living.ring.check == head.ring.check
        await cluster.check_sealed_by(cluster.head("b"))
        await off.begin()
        assert off.ring.check == head.ring.check
        await living.rotate(entry())
        await head.look(leads=False)
        await cluster.check_sealed_by(cluster.head("a"))

    scenario(work)


def test_a_head_that_was_off_for_too_long_is_refused_with_what_to_do(
    cluster: Cluster,
) -> None:
    async def work() -> None:
        head = await cluster.start()
        cluster.copy_key("b")
        await head.rotate(entry())
        cluster.now += 2 * 3600
        await head.look(leads=True)
        assert await cluster.store.agreed(WRAPPED) is None
        late = cluster.head("b")
        with pytest.raises(
            Conflict, match="differs from that of the other heads"
        ) as refused:
            await late.begin()
        assert "copy the file" in refused.value.hint
        cluster.copy_key("b")
        await cluster.head("b").begin()

    scenario(work)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("cut_at", range(1, 7))
def test_a_rotation_that_is_cut_short_loses_nothing_and_is_finished_by_the_next_head(
    tmp_path: Path, cut_at: int, after: bool
) -> None:
    async def work() -> None:
        store = CutStore()
        cluster = Cluster(tmp_path, store)
        head = await cluster.start()
        cluster.copy_key("b")
        other = cluster.head("b")
        await other.begin()
        store.cut_at, store.after = cut_at, after
        with pytest.raises(Cut):
            await head.rotate(entry())
        # the other one leads, then the one that was cut short comes back
        for name in "ba":
            again = cluster.head(name)
            await again.begin()
            await again.look(leads=True)
            await cluster.check_sealed_by(again)
        store.cut_at = 0
        await again.rotate(entry())
        await cluster.check_sealed_by(cluster.head("a"))

    scenario(work)


def test_a_secret_that_is_set_meanwhile_stays_as_it_was_set(cluster: Cluster) -> None:
    async def work() -> None:
        head = await cluster.start()
        fresh: bytes = b""
        plain = cluster.store.seal_anew

        async def seal_anew(name: str, *, was: bytes, now: bytes) -> bool:
            nonlocal fresh
            if name == "B" and not fresh:
                fresh = head.ring.seal("B", b"set meanwhile")
                await cluster.store.put_secret("B", fresh, by=ANN, at=2.0)
            return bool(await plain(name, was=was, now=now))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cluster.store, "seal_anew", seal_anew)
            await head.rotate(entry())
        assert await cluster.store.secret("B") == fresh
        assert head.ring.open("B", fresh) == b"set meanwhile"

    scenario(work)


def test_two_heads_that_rotate_at_once_agree_on_one_key(cluster: Cluster) -> None:
    async def work() -> None:
        head = await cluster.start()
        cluster.copy_key("b")
        other = cluster.head("b")
        await other.begin()
        await other.rotate(entry())
        current = await cluster.store.agreed(CURRENT)
        said = json.loads(await cluster.store.agreed(WRAPPED) or "{}")
        assert said["key"] == current
        await head.rotate(entry())  # it looks first
        await other.look(leads=False)
        await cluster.check_sealed_by(cluster.head("b"))
        assert other.ring.check == head.ring.check

    scenario(work)


def test_a_secret_that_no_key_opens_is_counted_and_does_not_stop_the_rest(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def work() -> None:
        head = await cluster.start()
        lost = KeyRing.load(tmp_path / "lost").seal("LOST", b"x")
        await cluster.store.put_secret("LOST", lost, by=ANN, at=1.0)
        done = await head.rotate(entry())
        assert (done.sealed, done.unreadable) == (len(NAMES), 1)
        assert await cluster.store.secret("LOST") == lost
        with pytest.raises(KeyTrouble):
            head.ring.open("LOST", lost)

    scenario(work)


def test_a_lone_head_whose_key_file_was_replaced_starts_all_the_same(
    cluster: Cluster,
) -> None:
    async def work() -> None:
        await cluster.start()
        (cluster.folder / "a").unlink()
        head = cluster.head(several=False)
        await head.begin()
        assert await cluster.store.agreed(CURRENT) == head.ring.check

    scenario(work)
