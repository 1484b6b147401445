"""Engines of replicas that the agent puts to sleep and wakes, by a server that answers
as vLLM or as llama.cpp does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from corral.agent.engine_sleep import EngineSleep
from corral.domain.desired_state import Launch, ReplicaLaunch
from corral.domain.ids import AttemptNumber, JobId, ServiceName
from corral.domain.job import SleepCalls
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.wire.engine_presets import ENGINE_PRESETS
from tests.simulate.test_parts import launch as any_launch

KEY: AttemptKey = (JobId("j1_1"), AttemptNumber(1))
CALLS = {name: preset.sleep_calls for name, preset in ENGINE_PRESETS.items()}


@dataclass
class Engine:
    """An engine that sleeps when asked, or by itself as `dozes` says."""

    calls: SleepCalls
    is_asleep: bool = False
    dozes: bool = False
    is_chunked: bool = False
    heads: list[str] = field(default_factory=list)
    port: int = 0

    async def answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        method, path, _ = head.split(" ", 2)
        if path == self.calls.state:
            self.is_asleep |= self.dozes
        elif method == "POST":
            self.is_asleep = path == self.calls.sleep
            self.dozes = False
        body = json.dumps({self.calls.state_field: self.is_asleep}).encode()
        if self.is_chunked:
            half = len(body) // 2
            parts = b"".join(
                b"%x\r\n%s\r\n" % (len(part), part)
                for part in (body[:half], body[half:], b"")
            )
            writer.write(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + parts
            )
        else:
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            )
        await writer.drain()
        writer.close()

    @property
    def posts(self) -> list[str]:
        return [head.split()[1] for head in self.heads if head.startswith("POST")]


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[Engine]:
    server = await asyncio.start_server(engine.answer, "127.0.0.1", 0)
    engine.port = server.sockets[0].getsockname()[1]
    async with server:
        yield engine


def launch_of(engine: Engine) -> Launch:
    replica = ReplicaLaunch(
        service=ServiceName("chat"),
        revision=1,
        number=1,
        probe="/health",
        key="secret",
        port=engine.port,
        sleep=engine.calls,
    )
    return replace(any_launch(KEY), replica=replica, master_address="127.0.0.1")


def calls_of(name: str) -> SleepCalls:
    calls = CALLS[name]
    assert calls is not None
    return calls


async def until(sleep: EngineSleep, *, asleep: bool) -> None:
    seen = Seen(key=KEY, phase=Phase.UP)
    async with asyncio.timeout(10):
        while sleep.reported([seen])[0].is_asleep is not asleep:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_an_engine_is_put_to_sleep_and_woken(is_chunked: bool) -> None:
    async def course() -> None:
        engine = Engine(calls_of("vllm"), is_chunked=is_chunked)
        async with running(engine):
            sleep = EngineSleep(on_change=lambda: None)
            launches, seens = {KEY: launch_of(engine)}, [Seen(key=KEY, phase=Phase.UP)]
            sleep.follow(launches, (), seens)
            await until(sleep, asleep=False)
            sleep.follow(launches, (KEY,), seens)
            await until(sleep, asleep=True)
            sleep.follow(launches, (), seens)
            await until(sleep, asleep=False)
            await sleep.close()
        assert engine.posts == ["/sleep?level=1", "/wake_up"]
        assert all("Authorization: Bearer secret" in head for head in engine.heads)

    asyncio.run(course())


def test_an_engine_that_falls_asleep_by_itself_is_only_woken() -> None:
    async def course() -> None:
        engine = Engine(calls_of("llama.cpp"))
        async with running(engine):
            sleep = EngineSleep(on_change=lambda: None)
            launches, seens = {KEY: launch_of(engine)}, [Seen(key=KEY, phase=Phase.UP)]
            sleep.follow(launches, (), seens)
            await until(sleep, asleep=False)
            engine.dozes = True  # it serves, and has had no request for a while
            await until(sleep, asleep=True)
            sleep.follow(launches, (KEY,), seens)
            await asyncio.sleep(0)
            sleep.follow(launches, (), seens)
            await until(sleep, asleep=False)
            await sleep.close()
        assert engine.posts == ["/tokenize"]

    asyncio.run(course())


def test_an_engine_that_does_not_answer_is_not_known_to_sleep() -> None:
    async def course() -> None:
        engine = Engine(calls_of("vllm"))
        async with running(engine):
            launches = {KEY: launch_of(engine)}
        sleep = EngineSleep(on_change=lambda: None)
        seens = [Seen(key=KEY, phase=Phase.UP)]
        sleep.follow(launches, (KEY,), seens)
        await asyncio.sleep(0.05)
        assert sleep.reported(seens)[0].is_asleep is None
        await sleep.close()

    asyncio.run(course())
