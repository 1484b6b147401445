"""Logs reach the head whole, once, soon, and without filling anybody's memory."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from corral.agent.connection import Dialler
from corral.agent.head_addresses import HeadAddresses
from corral.agent.log_shipping import CHUNK_BYTES, LOGS, WINDOW_BYTES, LogShipper
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.wire.agent_messages import LogChunk, from_agent
from tests.agent.fakehead import TOKEN, FakeHead
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS

KEY: Final = (JobId("j1"), AttemptNumber(1))
OTHER: Final = (JobId("j2"), AttemptNumber(3))


def read(file: Path, offset: int, most_bytes: int) -> tuple[int, bytes]:
    """A log without rotation."""
    with file.open("rb") as opened:
        opened.seek(offset)
        return offset, opened.read(most_bytes)


class Bench:
    """A shipper, a head and some attempts' folders."""

    def __init__(self, tmp_path: Path) -> None:
        self.attempts = tmp_path / "attempts"
        self.head = FakeHead(file=tmp_path / "head.json")
        self.drained: list[AttemptKey] = []
        self.shipper = LogShipper(
            attempts_dir=self.attempts, read=read, drained=self.drained.append
        )
        self._dialler = Dialler(heads=HeadAddresses(self.head.file), token=TOKEN)
        self._task: asyncio.Task[None] | None = None

    def write(self, data: bytes, key: AttemptKey = KEY, rank: int = 0) -> None:
        folder = self.attempts / f"{key[0]}.{key[1]}" / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"rank-{rank}.log").open("ab") as log:
            log.write(data)

    def observe(self, phase: Phase, keys: Iterable[AttemptKey] = (KEY,)) -> None:
        self.shipper.observe(tuple(Seen(key=key, phase=phase) for key in keys))

    def dial(self) -> None:
        self._task = asyncio.create_task(self._dialler.keep(LOGS, self.shipper.talk))

    async def hang_up(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


@asynccontextmanager
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    one = Bench(tmp_path)
    await one.head.start()
    one.shipper.start()
    one.dial()
    try:
        yield one
    finally:
        await one.hang_up()
        one.shipper.close()
        await one.head.die()


def test_a_log_arrives_whole_and_is_drained_only_after_its_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            here.write(b"one\n")
            here.observe(Phase.UP)
            await here.head.until(lambda: here.head.log(KEY) == b"one\n")
            here.write(b"two\n")
            await here.head.until(lambda: here.head.log(KEY) == b"one\ntwo\n")
            assert not here.shipper.is_drained(KEY)
            assert here.drained == []
            here.write(b"last")
            here.observe(Phase.ENDED)
            await here.head.until(lambda: KEY in here.drained)
            assert here.head.log(KEY) == b"one\ntwo\nlast"

    asyncio.run(story())


def test_a_rank_that_begins_to_write_late_is_followed_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            here.observe(Phase.STARTING)
            await asyncio.sleep(0.05)
            here.write(b"zero")
            await here.head.until(lambda: here.head.log(KEY, 0) == b"zero")
            here.write(b"seven", rank=7)
            await here.head.until(lambda: here.head.log(KEY, 7) == b"seven")

    asyncio.run(story())


def test_each_line_is_sent_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None waits until the shipper looks by itself, which it never does here."""
    monkeypatch.setattr("corral.agent.log_shipping.LOOK_SECONDS", NEVER_SECONDS)

    async def story() -> None:
        async with bench(tmp_path) as here:
            here.write(b"begin\n")
            here.observe(Phase.UP)
            await here.head.until(lambda: here.head.log(KEY))
            arrived = asyncio.Event()
            here.head.on_chunk = lambda chunk: arrived.set()
            for _ in range(20):
                await asyncio.sleep(0.03)
                arrived.clear()
                here.write(b"line\n")
                await asyncio.wait_for(arrived.wait(), PATIENCE_SECONDS)

    asyncio.run(story())


def test_a_head_that_comes_back_gets_the_rest_and_nothing_twice(tmp_path: Path) -> None:
    """The head may have kept less than was sent: it says how far it is."""
    whole = os.urandom(3_000_000)

    async def story() -> None:
        async with bench(tmp_path) as here:
            here.write(whole[:1_000_000])
            here.observe(Phase.UP)
            await here.head.until(lambda: here.head.log(KEY))
            await here.head.die()
            here.write(whole[1_000_000:2_000_000])
            kept = here.head.logs[(KEY, 0)]
            del kept[len(kept) // 2 :]  # what it had not yet made durable
            await asyncio.sleep(0.05)
            await here.head.start()
            here.write(whole[2_000_000:])
            here.observe(Phase.ENDED)
            await here.head.until(lambda: KEY in here.drained)
            assert here.head.log(KEY) == whole

    asyncio.run(story())


class Mute:
    """A connection to a head that takes everything in and confirms nothing."""

    def __init__(self) -> None:
        self.sent: list[LogChunk] = []

    async def send(self, frame: bytes) -> None:
        chunk = from_agent(frame)
        assert isinstance(chunk, LogChunk)
        self.sent.append(chunk)

    def bytes_of(self, key: AttemptKey) -> int:
        return sum(len(chunk.data) for chunk in self.sent if chunk.job == key[0])


def test_what_a_silent_head_has_not_confirmed_is_bounded(tmp_path: Path) -> None:
    """And another attempt's log is not held up by a flood."""

    async def story() -> None:
        here = Bench(tmp_path)
        mute = Mute()
        here.write(b"x" * (4 * WINDOW_BYTES))
        here.write(b"quiet", OTHER)
        here.observe(Phase.UP, [KEY, OTHER])
        for _ in range(30):
            for key in (KEY, OTHER):
                await here.shipper._ship_attempt_logs(mute, key)  # type: ignore[arg-type]
                for log in here.shipper._followed[key].logs.values():
                    log.kept = 0
        assert WINDOW_BYTES <= mute.bytes_of(KEY) <= WINDOW_BYTES + CHUNK_BYTES
        assert mute.bytes_of(OTHER) == len(b"quiet")

    asyncio.run(story())


def test_what_is_forgotten_is_followed_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            here.write(b"a")
            here.observe(Phase.UP)
            await here.head.until(lambda: here.head.log(KEY) == b"a")
            here.observe(Phase.UP, keys=())
            here.write(b"b")
            await asyncio.sleep(0.1)
            assert here.head.log(KEY) == b"a"

    asyncio.run(story())
