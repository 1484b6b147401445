"""What a head learns from what happens, what it tells, and what it writes down of
both."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from corral.control import Forecasts, forecasts
from corral.control.suggestions import changes_of
from corral.domain.attempt import Exit
from corral.domain.errors import Trouble
from corral.domain.ids import AttemptNumber, JobId, QueueName, UserName
from corral.domain.job import JobSpec
from corral.domain.observed_state import Phase, Seen
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.reason_code import ReasonCode
from corral.domain.requests import Cancel, Suspend
from corral.domain.resources import Resources
from corral.domain.run_history import Question, StartForecast
from corral.domain.users import AuditEntry
from corral.reconcile.start_forecast import foretell
from corral.schedule.waiting import Reason
from corral.store.memory_store import MemoryStore
from tests.control.test_control import Head, story
from tests.patience import PATIENCE_SECONDS
from tests.store.rows import imported
from tests.worlds import ALICE, Cluster, gang, node

ALL = gang("all-1", nodes=2, gpus=2)


@dataclass
class Here:
    """Answers at once, in the head's own thread."""

    asked: list[Question] = field(default_factory=list)
    trouble: bool = False
    gate: asyncio.Event | None = None

    async def forecast(self, question: Question) -> StartForecast | None:
        self.asked.append(question)
        if self.gate is not None:
            await self.gate.wait()
        if self.trouble:
            raise Trouble("no answer", hint="")
        return foretell(question, lambda part: True)


@pytest.fixture(autouse=True)
def _quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "ROUND_SECONDS", 0.005)
    monkeypatch.setattr(forecasts, "REST", 0.0)


class Learning(Head):
    """A head that is followed, and whose GPUs are all taken by one job."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        super().__init__(store)
        self.foreteller = Here()
        self.forecasts = Forecasts(self.control, self.foreteller)

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not done():
                await asyncio.sleep(0.005)

    async def says(self, id: JobId, phase: Phase) -> None:
        """All nodes say it of the job's first attempt."""
        exits = ((0, Exit(code=0, at=1.0)),) if phase == Phase.ENDED else ()
        one = Seen(key=(id, AttemptNumber(1)), phase=phase, exits=exits)
        self.seen = {"n1": (one,), "n2": (one,)}
        await self.step()

    async def rows(self) -> list[tuple[str, bool]]:
        told = await self.store.told(limit=9)
        return [(row.job, row.waited_seconds is not None) for row in told]


@asynccontextmanager
async def learning(store: MemoryStore | None = None) -> AsyncIterator[Learning]:
    head = Learning(store)
    await head.start()
    following = asyncio.create_task(head.forecasts.run())
    await asyncio.sleep(0)
    try:
        yield head
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def test_what_a_job_was_told_is_written_down_and_what_it_came_to() -> None:
    async def tell() -> None:
        async with learning() as head:
            first = await head.submit(ALL, key="a")
            await head.says(first, Phase.UP)
            waiting = await head.submit(gang("all-2", nodes=2, gpus=2), key="b")
            await head.until(lambda: bool(head.forecasts._open))
            assert await head.rows() == [(waiting, False)]
            head.clock.now += 100.0
            await head.says(first, Phase.ENDED)
            await head.until(lambda: not head.forecasts._open)
            (row,) = await head.store.told(limit=9)
            assert row.waited_seconds is not None
            assert 100.0 <= row.waited_seconds <= 102.0

    story(tell())


def test_nothing_is_foretold_of_a_job_that_no_node_has_an_account_for() -> None:
    async def tell() -> None:
        async with learning() as head:
            head.refused_users = ((ALICE, "it has no account alice"),)
            await head.step()
            id = await head.submit(gang())
            job = head.control.world.jobs[id]
            assert head.control.reason(job).code == "NoAccount"
            assert await head.forecasts.of(job, ALICE) is None

    story(tell())


def test_nothing_is_foretold_of_a_job_that_lent_gpus_hold_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lent = Reason(code=ReasonCode.LENT_ROOM, sentence="2 GPUs are lent")

    async def tell() -> None:
        async with learning() as head:
            first = await head.submit(ALL, key="a")
            await head.says(first, Phase.UP)
            id = await head.submit(gang("all-2", nodes=2, gpus=2), key="b")
            job = head.control.world.jobs[id]
            assert await head.forecasts.of(job, ALICE) is not None
            monkeypatch.setattr(head.control, "reason", lambda job: lent)
            assert await head.forecasts.of(job, ALICE) is None

    story(tell())


def test_a_new_head_knows_what_the_old_one_knew() -> None:
    async def tell() -> None:
        store = MemoryStore()
        async with learning(store) as head:
            first = await head.submit(ALL, key="a")
            await head.says(first, Phase.UP)
            await head.submit(gang("all-2", nodes=2, gpus=2), key="b")
            await head.until(lambda: bool(head.forecasts._open))
            head.clock.now += 100.0
            await head.says(first, Phase.ENDED)
            await head.until(lambda: len(head.forecasts._runs) == 1)
            await head.until(lambda: not head.forecasts._open)
            third = await head.submit(gang("all-3", nodes=2, gpus=2), key="c")
            await head.until(lambda: bool(head.forecasts._open))
        async with learning(store) as new:
            await new.until(lambda: bool(new.forecasts._runs))
            assert list(new.forecasts._runs) == list(head.forecasts._runs)
            assert list(new.forecasts._outcomes) == list(head.forecasts._outcomes)
            assert new.forecasts._open.keys() == {third}

    story(tell())


@pytest.mark.parametrize("stop", [Cancel, Suspend])
def test_a_start_that_somebody_put_off_is_no_outcome(
    stop: type[Cancel] | type[Suspend],
) -> None:
    async def tell() -> None:
        async with learning() as head:
            await head.submit(ALL, key="a")
            waiting = await head.submit(gang("all-2", nodes=2, gpus=2), key="b")
            await head.until(lambda: bool(head.forecasts._open))
            await head.granted(head.control.ask(stop(job=waiting), by=ALICE))
            await head.until(lambda: not head.forecasts._open)
            assert await head.rows() == []
            assert not head.forecasts._outcomes

    story(tell())


def test_a_job_that_starts_at_once_is_told_nothing() -> None:
    async def tell() -> None:
        async with learning() as head:
            first = await head.submit(gang(), key="a")
            job = head.control.world.jobs[first]
            assert await head.forecasts.of(job, ALICE) is None
            assert await head.forecasts.planned([gang()], [], ALICE) == {}
            assert not head.foreteller.asked

    story(tell())


def test_a_plan_is_told_of_the_first_job_that_would_wait_as_if_it_were_submitted() -> (
    None
):
    async def tell() -> None:
        async with learning() as head:
            await head.submit(ALL, key="a")
            specs = [
                gang("now"),
                gang("later", max_duration_seconds=60.0),
                gang("last"),
            ]
            found = await head.forecasts.planned(specs, [1, 2], ALICE)
            assert list(found) == [1]
            assert head.foreteller.asked[-1].job == "j2_1"
            assert "j2_1" not in head.control.world.jobs, "nothing has happened"

    story(tell())


def test_the_answer_of_the_last_seconds_serves_again() -> None:
    async def tell() -> None:
        async with learning() as head:
            await head.submit(ALL, key="a")
            waiting = await head.submit(gang("all-2", nodes=2, gpus=2), key="b")
            await head.until(lambda: bool(head.forecasts._open))
            job, asked = head.control.world.jobs[waiting], len(head.foreteller.asked)
            first = await head.forecasts.of(job, ALICE)
            assert first is not None
            assert await head.forecasts.of(job, ALICE) is first
            assert len(head.foreteller.asked) == asked + 1
            head.clock.now += forecasts.FRESH_SECONDS
            assert await head.forecasts.of(job, ALICE) is not first

    story(tell())


def test_forecasts_of_one_user_wait_for_each_other_and_not_for_those_of_others() -> (
    None
):
    async def tell() -> None:
        async with learning() as head:
            await head.submit(ALL, key="a")
            waiting = await head.submit(gang("all-2", nodes=2, gpus=2), key="b")
            await head.until(lambda: bool(head.forecasts._open))
            head.foreteller.gate = asyncio.Event()
            del head.foreteller.asked[:]
            job, specs = (
                head.control.world.jobs[waiting],
                [gang("more", nodes=2, gpus=2)],
            )
            asking = [
                asyncio.create_task(head.forecasts.planned(specs, [0], ALICE))
                for _ in range(9)
            ]
            other = asyncio.create_task(head.forecasts.of(job, UserName("bob")))
            most = forecasts.MOST_OF_ONE_USER
            await head.until(lambda: len(head.foreteller.asked) > most)
            assert len(head.foreteller.asked) == most + 1, "of alice two, and bob's"
            head.foreteller.gate.set()
            assert all(await asyncio.gather(*asking))
            assert await other is not None
            assert not head.forecasts._lines

    story(tell())


def test_nothing_is_told_where_there_is_no_answer() -> None:
    async def tell() -> None:
        async with learning() as head:
            await head.submit(ALL, key="a")
            waiting = await head.submit(gang("all-2", nodes=2, gpus=2), key="b")
            await head.until(lambda: bool(head.forecasts._open))
            head.foreteller.trouble = True
            assert (
                await head.forecasts.of(head.control.world.jobs[waiting], ALICE) is None
            )

    story(tell())


def test_what_was_imported_is_learned_from_in_the_next_round() -> None:
    async def tell() -> None:
        async with learning() as head:
            await head.submit(ALL, key="a")
            await head.until(lambda: not head.forecasts._behind)
            entry = AuditEntry(
                at=1.0, by=ALICE, token=None, what="history.import", on="sacct"
            )
            await head.store.keep_imported([imported("7")], entry=entry)
            head.forecasts.learn_anew()
            await head.until(
                lambda: [one.job for one in head.forecasts._runs] == ["sacct:7"]
            )

    story(tell())


def changes(spec: JobSpec, *kinds: str, queues: QueueTree | None = None) -> list[str]:
    world = Cluster(*(node(f"n{i}", 4, kind) for i, kind in enumerate(kinds))).world
    world.queues = queues or QueueTree()
    return [change for change, _ in changes_of(world, spec, ALICE)]


def test_what_is_suggested_is_smaller_shorter_or_elsewhere() -> None:
    tree = whole_tree(
        [Queue(name=name, nominal=((ANY_TYPE, 9000),)) for name in ("a", "b")]  # type: ignore[arg-type]
    )
    spec = gang(nodes=4, gpus=2, max_duration_seconds=7200.0)
    typed = replace(spec, resources=Resources(gpu_millis=2000, gpu_type="h100"))
    assert changes(typed, "h100", "h100", "h100", "h100", "a100", queues=tree) == [
        "with 2 nodes instead of 4",
        "with 1 node instead of 4",
        "in queue a",
        "in queue b",
        "with a max_duration of 1 h",
    ]
    assert "on a100 instead of h100" in changes(replace(typed, nodes=1), "h100", "a100")
    assert changes(gang(gpus=4), "h100") == ["with 2 GPUs instead of 4"]


def test_a_queue_that_would_not_take_it_is_not_suggested() -> None:
    small = Queue(name="small", nominal=((ANY_TYPE, 1000),), borrow_limit_millis=0)  # type: ignore[arg-type]
    assert changes(gang(gpus=1), "h100", queues=whole_tree([small])) == [
        "in queue small"
    ]
    assert changes(gang(gpus=3), "h100", queues=whole_tree([small])) == [
        "with 1 GPU instead of 3"
    ]


def test_a_queue_that_does_not_take_ones_jobs_is_not_suggested() -> None:
    own = ((ANY_TYPE, 9000),)
    closed = Queue(name=QueueName("closed"), nominal=own, allow=("bob",))
    below = Queue(name=QueueName("below"), parent=closed.name)
    mine = Queue(name=QueueName("mine"), parent=closed.name, allow=("alice",))
    tree = whole_tree([closed, below, mine])
    assert [one for one in changes(gang(), "h100", queues=tree) if "queue" in one] == [
        "in queue mine"
    ]
