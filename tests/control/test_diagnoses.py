"""What failed ranks printed is read beside the loop, which never waits for it."""

import asyncio
from dataclasses import dataclass, field, replace

from corral.control import Control, diagnoses
from corral.control.diagnoses import MOST_READINGS, Diagnoses
from corral.domain.attempt import Attempt, Exit
from corral.domain.cause import Cause
from corral.domain.diagnosis import Diagnosis, RankEnd, RankEnds
from corral.domain.errors import Trouble
from corral.domain.failure_class import Failure, FailureKind
from corral.domain.ids import AttemptNumber, ClusterId, JobId, NodeId, UserName
from corral.domain.job import Job, Retry
from corral.domain.job_states import JobState
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.domain.world import World
from corral.health.gang_failure import failure_of
from tests.control.test_control import HandClock, Head
from tests.store.rows import job
from tests.worlds import gang

EVIL = "OSError: [Errno 5] Input/output error: '/data/a'"
RAISED = (
    f'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n{EVIL}'
)


@dataclass
class ByHand:
    """Reads when the test lets it; `trouble`: it does not come to an end in time."""

    let: asyncio.Event = field(default_factory=asyncio.Event)
    trouble: bool = False
    asked: list[RankEnds] = field(default_factory=list)

    async def failure(self, ends: RankEnds) -> Failure | None:
        self.asked.append(ends)
        await self.let.wait()
        if self.trouble:
            raise Trouble("not read in time")
        return failure_of(ends)


class Reading(Head):
    """A head whose reader is beside its loop."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = ByHand()
        self.control = Control(
            store=self.store, engine=self.engine, clock=self.clock, reader=self.reader
        )

    async def start(self) -> "Reading":
        await super().start()
        self.running = asyncio.create_task(self.control.diagnoses.run())
        return self

    async def failed(self) -> JobId:
        """A job of which a rank has ended by an error of its machine's disk."""
        id = await self.submit(gang(gpus=0, retry=Retry(infra=1, user=1)))
        await self.step()
        self.end(id, RAISED)
        await self.step()
        return id

    def end(self, id: JobId, tail: str) -> None:
        attempt = self.control.world.attempts[id]
        key = (id, attempt.number)
        exits = ((0, Exit(code=1, at=self.clock.now)),)
        seen = Seen(key=key, phase=Phase.ENDED, exits=exits, tails=((0, tail),))
        self.seen = {str(attempt.nodes[0]): (seen,)}

    async def attempt(self, id: JobId, number: int = 1) -> Attempt:
        found = await self.store.attempts(id)
        return next(one for one in found if one.number == number)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_nobody_is_charged_before_it_is_read_and_no_tick_waits_for_it() -> None:
    async def tell() -> None:
        head = Reading()
        await head.start()
        id = await head.failed()
        for _ in range(20):  # ten seconds: heartbeats and commits go on
            async with asyncio.timeout(5.0):
                await head.step()
            await turns()
        assert head.control.world.jobs[id].state == JobState.RECOVERING
        assert head.control.world.attempts[id].failure == FailureKind.UNKNOWN
        assert len(head.reader.asked) == 1
        head.reader.let.set()
        await turns()
        await head.step()
        first, after = await head.attempt(id), head.control.world.jobs[id]
        assert (first.failure, first.cause) == (FailureKind.STORAGE, Cause.INFRA)
        assert (after.infra_retries, after.user_retries) == (1, 0)

    asyncio.run(tell())


def test_what_is_not_read_in_time_is_not_known_and_the_job_goes_on() -> None:
    async def tell() -> None:
        head = Reading()
        head.reader.trouble = True
        head.reader.let.set()
        await head.start()
        id = await head.failed()
        await turns()
        await head.step(3.0)
        first, after = await head.attempt(id), head.control.world.jobs[id]
        assert (first.failure, first.cause) == (FailureKind.UNKNOWN, Cause.USER)
        assert (after.infra_retries, after.user_retries) == (0, 1)
        assert len(head.reader.asked) == 1

    asyncio.run(tell())


def ends_of(tail: str) -> RankEnds:
    return (RankEnd(rank=0, node=NodeId("n1"), exit=Exit(code=1), tail=tail),)


def owned(number: int, owner: str) -> Job:
    return replace(
        job(number, JobState.RECOVERING, attempt=AttemptNumber(1)),
        owner=UserName(owner),
    )


Running = tuple[Diagnoses, World, list[JobId], "asyncio.Task[None]"]


def running(reader: ByHand, clock: HandClock, *jobs: Job) -> Running:
    """Diagnoses that read, the world of these jobs, and the jobs of what was read."""
    world, done = World(cluster=ClusterId("c"), term=1), list[JobId]()
    world.jobs.update({one.id: one for one in jobs})
    made = Diagnoses(reader, clock, done=done.append)
    return made, world, done, asyncio.create_task(made.run())


def test_users_take_turns() -> None:
    async def tell() -> None:
        reader = ByHand()
        jobs = [owned(number, "eve") for number in range(1, 51)] + [owned(51, "bob")]
        made, world, done, task = running(reader, HandClock(), *jobs)
        unread: dict[AttemptKey, RankEnds] = {
            (one.id, AttemptNumber(1)): ends_of("x") for one in jobs
        }
        made.ask(unread, world)
        reader.let.set()
        while len(done) < 51:
            await asyncio.sleep(0)
        assert done.index(jobs[-1].id) <= 1
        task.cancel()

    asyncio.run(tell())


def test_one_that_has_waited_too_long_in_line_is_not_read() -> None:
    async def tell() -> None:
        reader, clock = ByHand(), HandClock()
        first, second = owned(1, "eve"), owned(2, "eve")
        made, world, done, task = running(reader, clock, first, second)
        made.ask(
            {(one.id, AttemptNumber(1)): ends_of("x") for one in (first, second)}, world
        )
        await turns()
        clock.now += diagnoses.PATIENCE_SECONDS
        reader.let.set()
        while len(done) < 2:
            await asyncio.sleep(0)
        assert len(reader.asked) == 1
        assert made.known is not None
        late = made.known[second.id, AttemptNumber(1)]
        task.cancel()
        assert late == Diagnosis(ends=ends_of("x"), failure=None)

    asyncio.run(tell())


def test_logs_that_change_without_end_are_read_a_bounded_number_of_times() -> None:
    async def tell() -> None:
        reader, one = ByHand(), owned(1, "eve")
        reader.let.set()
        made, world, _, task = running(reader, HandClock(), one)
        key = (one.id, AttemptNumber(1))
        assert made.known is not None
        for number in range(MOST_READINGS):
            assert key not in made.known or not made.known[key].covers(
                ends_of(str(number))
            )
            made.ask({key: ends_of(str(number))}, world)
            await turns()
        assert made.known[key].covers(ends_of("more"))
        world.jobs[one.id] = replace(one, state=JobState.FAILED)
        made.forget(world)
        task.cancel()
        assert not made.known

    asyncio.run(tell())


def test_without_last_lines_nothing_is_asked_for() -> None:
    async def tell() -> None:
        head = Reading()
        await head.start()
        id = await head.submit(gang(gpus=0, retry=Retry(infra=1, user=1)))
        await head.step()
        head.end(id, "")
        await head.step()
        await head.step(3.0)
        assert head.control.world.jobs[id].user_retries == 1
        assert not head.reader.asked

    asyncio.run(tell())
