"""A history on a server of PostgreSQL: heads that take each other's place and place
jobs, people who submit, and faults that a seed draws. What each was told is kept, and
held against the store.

A head here does what control does with the store: it leads, commits what it decides
from the world it has in memory, and leads anew when it does not know what became of a
commit.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TypeVar

from corral.domain.attempt import SeatState
from corral.domain.errors import StoreTrouble, TermLost
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.job_states import JobState
from corral.domain.requests import StoredRequest
from corral.domain.world import Changes, Event, World
from corral.store.postgres import PostgresStore
from tests.postgres import Server
from tests.store.line import Line, lines
from tests.store.rows import ANN, allocation, attempt, event, job, submit

T = TypeVar("T")
HEADS, PEOPLE = 3, 2
MOST = 100_000
Quietly = contextlib.suppress(StoreTrouble)


@dataclass(slots=True)
class Told:
    """What heads and people were told. A commit is known by its mark, the text of an
    event."""

    # done: mark -> number of its event
    commits: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    # the term was lost: nothing may be written
    refused: set[str] = field(default_factory=set)
    # acknowledged: key -> sequence
    requests: dict[str, int] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    terms: int = 0


def _opened(url: str) -> PostgresStore:
    return PostgresStore(url)


async def again(ask: Callable[[], Awaitable[T]]) -> T:
    """Its answer, as often as it takes: the server ends what a busy machine lets sleep,
    too."""
    while True:
        with Quietly:
            return await ask()


def changes_of(world: World, requests: list[StoredRequest], mark: str) -> Changes:
    """Jobs of the requests are queued, two that are queued are placed, one that was
    placed ends."""
    made = [job(one.sequence) for one in requests]
    queued = [one for one in world.jobs.values() if one.state == JobState.QUEUED][:2]
    placed = [
        job(one.submitted, JobState.STARTING, attempt=AttemptNumber(one.attempt + 1))
        for one in queued
    ]
    ending = [one for one in world.jobs.values() if one.state == JobState.STARTING][:1]
    over = [job(one.submitted, JobState.DONE, attempt=one.attempt) for one in ending]
    return Changes(
        jobs=(*made, *placed, *over),
        attempts=tuple(attempt(one.id, one.attempt) for one in placed),
        allocations=(
            *(allocation(one.id, one.attempt) for one in placed),
            *(
                allocation(one.id, one.attempt, state=SeatState.RELEASED)
                for one in over
            ),
        ),
        events=(
            event(mark),
            *(event("placed", one.id) for one in placed),
            *(event("over", one.id) for one in over),
        ),
        granted=max((one.sequence for one in requests), default=None),
    )


@dataclass(slots=True)
class History:
    """One seed's. `seconds` of faults, then all is whole and the rest is done."""

    server: Server
    seed: int
    seconds: float
    kills: bool
    told: Told = field(default_factory=Told)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> Told:
        address = self.server.database()
        with lines(HEADS, self.server.place) as made:
            urls = [line.url(address) for line in made]
            store = await asyncio.to_thread(_opened, address)
            work = [
                asyncio.create_task(self._head(n, url)) for n, url in enumerate(urls)
            ]
            work += [asyncio.create_task(self._person(n, urls)) for n in range(PEOPLE)]
            try:
                await self._strike(made)
                self.over.set()
                await asyncio.gather(*work)
                await self._finish(store)
                await self._check(store)
            finally:
                for one in work:
                    one.cancel()
                await asyncio.gather(*work, return_exceptions=True)
                await store.close()
        return self.told

    # -- those who use the store -----------------------------------------------------------------

    async def _head(self, number: int, url: str) -> None:
        chance = Random(f"{self.seed} head {number}")
        store: PostgresStore | None = None
        while not self.over.is_set():
            with Quietly, contextlib.suppress(TermLost):
                if store is None:
                    store = await asyncio.to_thread(_opened, url)
                await self._lead(store, f"{number}", chance.randint(1, 8))
            await asyncio.sleep(chance.uniform(0.0, 0.2))
        if store is not None:
            await store.close()

    async def _lead(self, store: PostgresStore, name: str, rounds: int) -> None:
        """Some rounds as the leader. Raises: StoreTrouble, TermLost."""
        world = await store.lead()
        self.told.terms += 1
        for number in range(rounds):
            mark = f"term {world.term} of {name}, commit {number}"
            fresh = [
                one
                for one in await store.requests_after(0)
                if one.sequence > world.granted
            ]
            changes = changes_of(world, fresh, mark)
            try:
                events = await store.commit(world.term, changes)
            except StoreTrouble:
                self.told.unknown.add(mark)
                raise
            except TermLost:
                self.told.refused.add(mark)
                raise
            self.told.commits[mark] = events[0].number
            world.apply(changes)

    async def _person(self, number: int, urls: list[str]) -> None:
        """Submits under one key until that is acknowledged, at this head or another."""
        chance, stores = (
            Random(f"{self.seed} person {number}"),
            dict[str, PostgresStore](),
        )
        count = 0
        while not self.over.is_set():
            url = chance.choice(urls)
            with Quietly:
                if url not in stores:
                    stores[url] = await asyncio.to_thread(_opened, url)
                key = f"{number}-{count}"
                request = await stores[url].add_request(
                    submit(key, key), by=ANN, at=1.0
                )
                self.told.requests[key] = request.sequence
                count += 1
            await asyncio.sleep(chance.uniform(0.0, 0.05))
        for store in stores.values():
            await store.close()

    # -- faults ----------------------------------------------------------------------------------

    async def _strike(self, made: list[Line]) -> None:
        chance = Random(self.seed)
        clock = asyncio.get_running_loop().time
        end = clock() + self.seconds
        while clock() < end:
            await asyncio.sleep(chance.uniform(0.02, 0.2))
            kinds: list[Callable[[Line, Random], None]] = [
                self._cut,
                self._lose,
                self._lose,
            ]
            draw = chance.random()
            if self.kills and draw < 0.2:
                await self._restart()
            elif draw < 0.35:
                await self._freeze(chance.choice(made), chance)
            else:
                chance.choice(kinds)(chance.choice(made), chance)
        for line in made:
            line.loses_answer = False
        self.told.faults["a lost answer to a commit"] = sum(line.lost for line in made)

    def _cut(self, line: Line, chance: Random) -> None:
        self.told.faults["a cut line"] += 1
        line.cut()

    def _lose(self, line: Line, chance: Random) -> None:
        line.loses_answer = True

    async def _freeze(self, line: Line, chance: Random) -> None:
        """A head that sleeps, for less or more than the server waits for it."""
        self.told.faults["a sleep"] += 1
        line.freeze()
        await asyncio.sleep(chance.choice([0.1, 0.3, 0.9]))
        line.thaw()

    async def _restart(self) -> None:
        self.told.faults["a killed server"] += 1
        await asyncio.to_thread(self.server.kill)
        await asyncio.to_thread(self.server.start)

    # -- what must hold --------------------------------------------------------------------------

    async def _finish(self, store: PostgresStore) -> None:
        """A last head does what is left, over a line without faults."""
        while True:
            with Quietly:
                await self._lead(store, "the last", 1)
                world = await store.lead()
                if not world.jobs and not await store.requests_after(0):
                    return

    async def _check(self, store: PostgresStore) -> None:
        log = await again(lambda: store.events(after=0, job=None, limit=MOST))
        assert [one.number for one in log] == list(range(1, len(log) + 1)), (
            "a gap, or twice"
        )
        self._check_commits(log)
        placed = Counter(one.job for one in log if one.text == "placed")
        ended = Counter(one.job for one in log if one.text == "over")
        assert set(placed.values()) <= {1}, f"placed twice: {placed.most_common(3)}"
        for key, sequence in self.told.requests.items():
            kept = await again(partial(store.request_of_key, key, by=ANN))
            assert kept is not None, f"{key} was acknowledged and is lost"
            assert kept.sequence == sequence, f"{key} is there twice"
        jobs = {
            one.id for one in await again(lambda: store.jobs(final=True, limit=MOST))
        }
        assert {JobId(f"j{one}") for one in self.told.requests.values()} <= jobs
        assert placed == ended == Counter(jobs), "what was submitted ran once"

    def _check_commits(self, log: Sequence[Event]) -> None:
        marks = {one.text: one.number for one in log if one.text.startswith("term ")}
        for mark, number in self.told.commits.items():
            assert marks.get(mark) == number, f"{mark} was acknowledged as {number}"
        written = set(marks)
        assert not written & self.told.refused, "an old leader has written"
        assert written <= set(self.told.commits) | self.told.unknown
        terms = [int(mark.split()[1]) for mark in marks]
        assert terms == sorted(terms), "a leader has written after the next one"
