"""What the head must not forget, and what it must, when ticks and stores fail."""

import asyncio

import pytest

from corral.domain.attempt import Exit
from corral.domain.errors import NotFound, StoreTrouble, TermLost
from corral.domain.ids import JobId
from corral.domain.job import After
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase, Progress, Seen
from corral.domain.requests import Cancel, Submit
from corral.domain.world import Changes, Event, World
from corral.store.memory_store import MemoryStore
from tests.control.test_control import Head, story
from tests.patience import PATIENCE_SECONDS
from tests.worlds import ALICE, gang


class Unsure(MemoryStore):
    """Writes a commit and loses the answer; then cannot be read for a while."""

    lose_answer = False
    unreadable = 0
    leads = 0

    async def commit(self, term: int, changes: Changes) -> tuple[Event, ...]:
        events = tuple(await super().commit(term, changes))
        if self.lose_answer:
            self.lose_answer, self.unreadable = False, 1
            raise StoreTrouble("the answer was lost")
        return events

    async def lead(self, *, known: int | None = None) -> World:
        if self.unreadable:
            self.unreadable -= 1
            raise StoreTrouble("the disk does not answer")
        self.leads += 1
        return await super().lead(known=known)


def test_nothing_is_decided_on_a_world_that_could_not_be_loaded_again() -> None:
    async def tell() -> None:
        store = Unsure()
        head = await Head(store).start()
        running = asyncio.ensure_future(head.control.run())
        store.lose_answer = True
        request = asyncio.ensure_future(
            head.control.submit([gang()], key="k", by=ALICE)
        )
        id = (await asyncio.wait_for(request, PATIENCE_SECONDS))[0].id
        running.cancel()
        assert store.leads == 2
        assert head.control.world.attempts[id].number == 1
        assert [one.job for one in head.control.world.allocations.values()] == [id]

    story(tell())


def test_a_follower_whose_events_were_lost_with_an_answer_is_told_to_read_the_store() -> (
    None
):
    async def tell() -> None:
        store = Unsure()
        head = await Head(store).start()
        running = asyncio.ensure_future(head.control.run())
        async with head.control.hub.follow(None) as queue:
            store.lose_answer = True
            await asyncio.wait_for(
                head.control.submit([gang()], key="k", by=ALICE), PATIENCE_SECONDS
            )
            assert queue.get_nowait() is None
        running.cancel()

    story(tell())


def test_placing_that_fails_does_not_keep_cancels_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def tell() -> None:
        head = await Head().start()
        running = await head.submit(gang("running"), key="1")
        waiting = await head.submit(gang("waiting", gpus=2, nodes=2), key="2")

        def faulty(*_: object, **__: object) -> object:
            raise ZeroDivisionError("a fault of ours")

        monkeypatch.setattr("corral.reconcile.placement.decide", faulty)
        await head.granted(head.control.ask(Cancel(job=running), by=ALICE))
        assert head.control.world.jobs[running].state == JobState.STOPPING
        assert head.control.world.jobs[waiting].state == JobState.QUEUED
        assert "placement" in head.replays
        assert any(
            "scheduling pass failed" in said.text for said in head.control.warnings()
        )

    story(tell())


@pytest.mark.parametrize("reference", ["@x", "@2", "@-1", "@"])
def test_a_reference_to_no_job_of_the_submission_is_refused(reference: str) -> None:
    async def tell() -> None:
        head = await Head().start()
        spec = gang(after=(After(job=JobId(reference)),))
        with pytest.raises(NotFound):
            await head.control.submit([gang("first"), spec], key="k", by=ALICE)
        assert not await head.store.requests_after(0)

    story(tell())


def test_of_a_job_that_is_over_nothing_stays_in_memory_but_its_state() -> None:
    async def tell() -> None:
        head = await Head().start()
        control = head.control
        for turn in range(4):
            id = await head.submit(gang(), key=str(turn))
            where = control.world.attempts[id].nodes[0]
            key = (id, control.world.jobs[id].attempt)
            beat = Progress(step=turn + 1)
            head.seen[where] = (Seen(key=key, phase=Phase.UP, progress=beat),)
            await head.step()
            ended = Seen(
                key=key, phase=Phase.ENDED, exits=((0, Exit(code=0)),), progress=beat
            )
            head.seen[where] = (ended,)
            # every other end in a look at all jobs
            await head.step(0.1 if turn % 2 else 1.5)
            assert control.world.ended[id] == JobState.DONE
            late = Seen(key=key, phase=Phase.ENDED, progress=Progress(step=turn + 2))
            head.seen[where] = (late,)  # said again until it is settled
            await head.step()
            head.seen[where] = ()
            await head.step(1.5)
        assert not control.facts.stepped
        assert not control._book._nodes_of
        assert not any(control._book._held.values())

    story(tell())


def test_a_head_that_another_has_followed_does_not_take_the_lead_back() -> None:
    """The disk failed it, and it meant to load its world again: by then another head
    led."""

    async def tell() -> None:
        store = Unsure()
        head = await Head(store).start()
        store.lose_answer = True
        await head.control.acknowledge(Submit(specs=(gang(),), key="k"), by=ALICE)
        with pytest.raises(StoreTrouble):
            await head.control.tick()
        store.unreadable = 0
        other = (await store.lead()).term
        with pytest.raises(TermLost):
            await head.control.start()
        assert (await store.lead(known=other)).term == other + 1

    story(tell())


def test_an_idle_head_learns_that_another_leads() -> None:
    async def tell() -> None:
        store = Unsure()
        head = await Head(store).start()
        await head.step()
        await store.lead()

        async def many_ticks() -> None:
            for _ in range(10):
                await head.step(1.0)

        with pytest.raises(TermLost):
            await many_ticks()

    story(tell())
