"""Faults of replicas, with real processes, before mock engines and before llama.cpp: a
replica that is killed, that hangs, that is slow or errs, and a request that kills."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.gateway.worlds import Answer
from tests.scenarios.services.fleet import (
    ENGINES,
    Fleet,
    Replica,
    chat,
    fleet,
    play,
    stream,
    stream_of,
    text_of,
    tokens_of,
)

POISON = "xyzzy-poison"
KILLED_AT = 20  # events of a stream
# six answers fit into the context of one llama.cpp
TOKENS = {"mock": 120, "llama": 300}


async def requests(running: Fleet, count: int, at_once: int = 8) -> list[Answer]:
    """Send requests, a number of them at once; return their answers."""
    numbers = iter(range(count))
    answers: list[Answer] = []

    async def client() -> None:
        for number in numbers:
            answers.append(await running.post(chat(number)))

    await asyncio.gather(*(client() for _ in range(at_once)))
    return answers


@pytest.mark.parametrize("engine", ENGINES)
def test_a_replica_killed_under_load_fails_no_request_and_cuts_no_stream(
    tmp_path: Path, engine: str
) -> None:
    async def scenario() -> None:
        async with fleet(tmp_path, engine) as running:
            tokens = TOKENS[engine]
            bodies = [stream_of(number, tokens) for number in range(6)]
            alone = await asyncio.gather(*(running.post(body) for body in bodies))
            victims: list[Replica] = []

            async def choose_victim() -> None:
                if not victims:  # only streams are under way
                    victims.append(await running.busiest())

            streams = [
                asyncio.ensure_future(stream(running, body, KILLED_AT, choose_victim))
                for body in bodies
            ]
            await running.until(lambda: victims)
            others = asyncio.ensure_future(requests(running, 100))
            await asyncio.sleep(0)
            victims[0].send(signal.SIGKILL)
            whole = await others
            cut = await asyncio.gather(*streams)
            assert [answer.status for answer in whole] == [200] * 100
            for before, after in zip(alone, cut, strict=True):
                assert after.events[-1] == "[DONE]"
                assert tokens_of(after) == tokens_of(before) == tokens
                if engine == "mock":  # llama.cpp's own text differs under load
                    assert text_of(after) == text_of(before)
            metrics = await running.metrics()
            assert metrics["streams_lost_total"] == 0
            assert metrics["streams_continued_total"] > 0
            assert metrics["replicas_available"] == 2

    play(scenario())


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_a_replica_that_hangs_is_ejected_at_its_deadline_and_probed_when_it_is_back(
    tmp_path: Path, engine: str
) -> None:
    deadline = 2.0

    async def scenario() -> None:
        async with fleet(tmp_path, engine, deadline_seconds=deadline) as running:
            for number in range(40):  # first-token times are learned
                await running.post(stream_of(number, 4))
            running.replicas[0].send(signal.SIGSTOP)
            begin = time.monotonic()
            is_over = False
            slowest = 0.0

            async def client() -> None:
                nonlocal slowest
                while not is_over:
                    at = time.monotonic()
                    answer = await running.post(stream_of(99, 4))
                    assert answer.events[-1] == "[DONE]"
                    slowest = max(slowest, time.monotonic() - at)

            clients = [asyncio.ensure_future(client()) for _ in range(6)]
            await running.until_available(2)
            ejected = time.monotonic() - begin
            is_over = True
            await asyncio.gather(*clients)
            assert ejected <= deadline + 1.0
            assert slowest <= deadline + 1.0
            at = time.monotonic()
            for number in range(20):
                assert (await running.post(stream_of(number, 4))).status == 200
            assert time.monotonic() - at < deadline, "it gets no request now"
            running.replicas[0].send(signal.SIGCONT)
            await running.until_available(3)

    play(scenario())


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_a_slow_replica_and_a_faulty_one_cost_little_and_are_never_all_ejected(
    tmp_path: Path, engine: str
) -> None:
    async def scenario() -> None:
        faults = [(), ("--delay", "0.5"), ("--errors", "0.05")]
        async with fleet(tmp_path, engine, 3, faults=faults) as running:
            # without the healthy one, so that the faulty one certainly gets requests
            running.write_routes(running.replicas[1:])
            await running.until_available(2)
            while not (await running.metrics())["retries_total"]:
                statuses = [answer.status for answer in await requests(running, 20)]
                assert statuses == [200] * 20
            running.write_routes()
            await running.until_available(3)
            await requests(running, 60)
            available = []
            seconds: list[float] = []

            async def one(number: int) -> int:
                at = time.monotonic()
                answer = await running.post(chat(number))
                seconds.append(time.monotonic() - at)
                return answer.status

            for number in range(0, 400, 8):
                burst = [one(number + place) for place in range(8)]
                assert set(await asyncio.gather(*burst)) == {200}
                available.append((await running.metrics())["replicas_available"])
            assert min(available) >= 2
            late = sum(value > 0.45 for value in seconds)
            assert late <= 0.1 * len(seconds), f"{late} of {len(seconds)} were slow"

    play(scenario())


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_when_all_replicas_err_half_of_them_still_get_requests(
    tmp_path: Path, engine: str
) -> None:
    async def scenario() -> None:
        common = ("--errors", "0.5")
        async with fleet(tmp_path, engine, 4, common=common) as running:
            statuses: set[int] = set()
            available = []
            for _ in range(20):
                answers = await requests(running, 16)
                statuses |= {answer.status for answer in answers}
                available.append((await running.metrics())["replicas_available"])
            assert statuses == {200, 500}
            assert min(available) == 2

    play(scenario())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_request_that_kills_replicas_is_refused_and_its_neighbours_are_served(
    tmp_path: Path, engine: str
) -> None:
    async def scenario() -> None:
        common = ("--poison", POISON)
        async with fleet(tmp_path, engine, 5, common=common) as running:
            neighbours = asyncio.ensure_future(requests(running, 120, at_once=4))
            await asyncio.sleep(0.2)
            poisoned = chat(0)
            poisoned["messages"] = [{"role": "user", "content": POISON}]
            answers = [await running.post(poisoned) for _ in range(6)]
            statuses = [answer.status for answer in await neighbours]
            assert statuses == [200] * 120
            assert [answer.status for answer in answers[3:]] == [422] * 3
            assert {answer.code for answer in answers[3:]} == {"request_quarantined"}
            dead = [replica for replica in running.replicas if not replica.is_alive]
            # two, or up to four if the same neighbours were under way at each of them
            assert 2 <= len(dead) <= 4

    play(scenario())
