"""When a head forgets jobs that are over, and what it says to those who ask for them
after."""

import asyncio
from collections.abc import Sequence

import pytest

from corral.control import Control
from corral.control.retention import FORGET_SECONDS
from corral.domain.errors import Forgotten
from corral.domain.ids import JobId
from corral.domain.job import After, On
from corral.domain.job_states import JobState
from corral.domain.requests import Cancel
from corral.domain.retention import Retention
from corral.domain.world import Changes, Event
from corral.store.memory_store import MemoryStore
from tests.control.test_control import Head, story
from tests.worlds import ALICE, gang


class Forgetting(Head):
    """Keeps one job that is over; all its GPUs are taken, so a new job waits."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        super().__init__(store)
        self.control = Control(
            store=self.store,
            engine=self.engine,
            clock=self.clock,
            retention=Retention(jobs=1),
        )

    async def start(self) -> "Forgetting":
        await super().start()
        await self.submit(gang(nodes=2, gpus=2), key="all")
        return self

    async def cancelled(self, name: str) -> JobId:
        id = await self.submit(gang(name), key=name)
        await self.granted(self.control.ask(Cancel(job=id), by=ALICE))
        return id

    async def later(self) -> None:
        """Until it has looked at what is over."""
        await self.step(1.0)
        await self.step(FORGET_SECONDS)


def test_a_head_forgets_what_is_more_than_it_keeps() -> None:
    async def tell() -> None:
        head = await Forgetting().start()
        ids = [await head.cancelled(name) for name in ("a", "b", "c")]
        await head.later()
        assert head.control.keeping.forgotten == 2
        assert [await head.store.job(id) is None for id in ids] == [True, True, False]

    story(tell())


def test_the_key_of_a_forgotten_job_is_refused_and_makes_no_second_one() -> None:
    async def tell() -> None:
        head = await Forgetting().start()
        await head.cancelled("a")
        await head.cancelled("b")
        await head.later()
        with pytest.raises(Forgotten, match="with this key was deleted"):
            await head.submit(gang("a"), key="a")
        with pytest.raises(Forgotten):
            await head.control.submitted("a", by=ALICE)
        assert [job.spec.name for job in await head.store.jobs(final=True, limit=9)] == [
            "b", "gpt",
        ]  # fmt: skip

    story(tell())


def test_what_a_submission_waits_for_stays_from_the_moment_it_is_taken() -> None:
    async def tell() -> None:
        head = await Forgetting().start()
        first = await head.cancelled("a")
        await head.cancelled("b")
        waits = After(job=first, name="a", on=On.ENDED)
        asking = asyncio.ensure_future(
            head.control.submit([gang("waits", after=(waits,))], key="w", by=ALICE)
        )
        await asyncio.sleep(0)  # it has been looked at, and is not granted
        assert head.control.keeping.spared == {first}
        await head.later()
        (job,) = await asking
        assert job.state == JobState.QUEUED
        assert not head.control.keeping.spared
        assert head.control.world.state_of(first) == JobState.CANCELLED

    story(tell())


def test_what_is_being_forgotten_can_be_waited_for_no_more() -> None:
    class Slow(MemoryStore):
        head: Forgetting
        refused = 0

        async def commit(self, term: int, changes: Changes) -> Sequence[Event]:
            for id in changes.forgotten:
                with pytest.raises(Forgotten):
                    await self.head.control.submit(
                        [gang(after=(After(job=id),))], key="late", by=ALICE
                    )
                self.refused += 1
            return await super().commit(term, changes)

    async def tell() -> None:
        store = Slow()
        store.head = head = Forgetting(store)
        await head.start()
        await head.cancelled("a")
        await head.cancelled("b")
        await head.later()
        assert store.refused == 1
        assert all(
            job.state != JobState.HELD for job in head.control.world.jobs.values()
        )

    story(tell())
