"""Answers after which another replica is tried, and when."""

import asyncio
from typing import Any

import pytest

from corral.gateway.counting.token_counts import TokenCounts
from corral.gateway.replicas import service_replicas
from corral.gateway.requests.attempt import ReplicaAttempt
from corral.gateway.routing.service_route import ServiceRoute
from corral.route import first_token_deadline
from corral.route.first_token_deadline import LEAST_SAMPLES
from tests.gateway.worlds import (
    Behave,
    MockReplica,
    ReplicaSide,
    Request,
    World,
    answer_close,
    answer_json,
    answer_nothing,
    answer_raw,
    answer_stream,
    gateway,
    json_bytes,
    play,
    request_bytes,
)

STREAM = {"model": "chat", "messages": [], "stream": True}
ERROR = answer_raw(json_bytes("engine's words", status="500 Internal Server Error"))


def in_turn(*behaviours: Any) -> tuple[list[str], Any]:
    """Return the names of the replicas in the order of requests, and a behaviour: each
    request gets the next one, and the last stays."""
    names: list[str] = []

    def behave(request: Request, side: ReplicaSide) -> None:
        names.append(side.replica.name)
        behaviours[min(len(names), len(behaviours)) - 1](request, side)

    return names, behave


def test_an_engine_s_error_is_tried_once_at_another_replica() -> None:
    async def scenario() -> None:
        names, behave = in_turn(ERROR, answer_json)
        replicas = [MockReplica(name, behave) for name in "ab"]
        async with gateway(*replicas) as world:
            assert (await world.post()).status == 200
            assert sorted(names) == ["a", "b"]
            first = world.metrics.by_replica[names[0]]
            assert first.losses == {"engine_error": 1}
            assert world.metrics.by_replica[names[1]].requests == {200: 1}

    play(scenario())


def test_a_second_error_is_passed_on_in_the_engine_s_words() -> None:
    async def scenario() -> None:
        names, behave = in_turn(ERROR)
        replicas = [MockReplica(name, behave) for name in "abc"]
        async with gateway(*replicas) as world:
            answer = await world.post()
            assert answer.status == 500
            assert b"engine's words" in answer.body
            assert len(names) == 2

    play(scenario())


def test_without_a_retry_in_the_budget_the_engine_s_words_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ServiceRoute, "take_retry", lambda *_: False)

    async def scenario() -> None:
        for status in ("500 Oops", "503 Busy", "429 Busy"):
            behave = answer_raw(json_bytes("own words", status=status))
            replicas = [MockReplica(name, behave) for name in "ab"]
            async with gateway(*replicas) as world:
                answer = await world.post()
                assert answer.status == int(status[:3])
                assert b"own words" in answer.body

    play(scenario())


@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
def test_a_replica_gets_nothing_until_its_retry_after(status: str) -> None:
    async def scenario() -> None:
        busy = answer_raw(json_bytes(status=status, extra="retry-after: 1\r\n"))
        names, behave = in_turn(busy, answer_json)
        replicas = [MockReplica(name, behave) for name in "ab"]
        async with gateway(*replicas) as world:
            start = world.core.now()
            for _ in range(20):
                assert (await world.post()).status == 200
            assert world.core.now() - start < 0.9
            assert names.count(names[0]) == 1
            assert world.metrics.ejections == 0
            next(one for one in replicas if one.name != names[0]).kill()
            assert (await world.post()).status == 200
            assert 0.9 < world.core.now() - start < 1.5
            assert names.count(names[0]) == 2

    play(scenario())


def test_a_request_waits_for_the_retry_after_of_the_only_replica() -> None:
    async def scenario() -> None:
        busy = answer_raw(
            json_bytes(status="503 Service Unavailable", extra="retry-after: 1\r\n")
        )
        _, behave = in_turn(busy, answer_json)
        async with gateway(MockReplica("a", behave)) as world:
            start = world.core.now()
            assert (await world.post()).status == 200
            assert 0.9 < world.core.now() - start < 1.5

    play(scenario())


def learn_quick_first_tokens(world: World) -> None:
    for _ in range(2 * LEAST_SAMPLES):
        world.core.services["chat"].first_tokens.observe(0.01)


def test_a_late_first_token_moves_the_request_before_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_token_deadline, "LEAST_SECONDS", 0.1)

    async def scenario() -> None:
        names, behave = in_turn(answer_nothing, answer_stream(2))
        replicas = [MockReplica(name, behave) for name in "ab"]
        async with gateway(*replicas) as world:
            learn_quick_first_tokens(world)
            start = world.core.now()
            answer = await world.post(STREAM)
            assert answer.events[-1] == "[DONE]"
            assert world.core.now() - start < 1.0
            assert len(set(names)) == 2
            assert world.metrics.retries == 1
            assert world.metrics.by_replica[names[0]].losses == {"no_first_byte": 1}

    play(scenario())


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_slow_first_token_alone_fails_no_request(
    replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_token_deadline, "LEAST_SECONDS", 0.1)

    async def scenario() -> None:
        def behave(request: Request, side: ReplicaSide) -> None:
            async def send() -> None:
                await asyncio.sleep(0.4)
                answer_stream(2)(request, side)

            side.start(send())

        mocks = [MockReplica(name, behave) for name in "abc"[:replicas]]
        async with gateway(*mocks, deadline_seconds=2) as world:
            learn_quick_first_tokens(world)
            assert (await world.post(STREAM)).events[-1] == "[DONE]"
            sent = sum(len(mock.requests) for mock in mocks)
            assert sent == min(2, replicas)

    play(scenario())


def after(seconds: float, behave: Behave) -> Behave:
    """Return a behaviour that begins later."""

    def later(request: Request, side: ReplicaSide) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            behave(request, side)

        side.start(wait())

    return later


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        (after(0.3, answer_stream(20)), answer_nothing, 0),
        (answer_nothing, answer_stream(20), 1),
        (after(0.5, answer_stream(20)), answer_close, 0),
        (after(0.2, answer_close), after(0.3, answer_stream(20)), 1),
        (after(0.2, ERROR), after(0.3, answer_stream(20)), 1),
    ],
)
def test_a_late_attempt_races_with_another_and_the_loser_is_cancelled(
    first: Behave, second: Behave, winner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_token_deadline, "LEAST_SECONDS", 0.1)

    async def scenario() -> None:
        names, behave = in_turn(first, second)
        replicas = {name: MockReplica(name, behave) for name in "ab"}
        async with gateway(*replicas.values(), deadline_seconds=5) as world:
            learn_quick_first_tokens(world)
            post = asyncio.ensure_future(world.post(STREAM))
            await world.until(lambda: len(names) == 2)
            assert len(set(names)) == 2
            answered = world.metrics.by_replica[names[winner]].requests
            loser = replicas[names[1 - winner]]
            if answer_nothing in (first, second):
                # the loser is cut when the other one begins, not when it ends
                await world.until(lambda: not loser.sides)
                assert not post.done()
            answer = await post
            assert answer.events[-1] == "[DONE]"
            assert len(answer.events) == 21
            assert answered == {200: 1}

    play(scenario())


def test_a_client_that_leaves_ends_both_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_token_deadline, "LEAST_SECONDS", 0.1)

    async def scenario() -> None:
        replicas = [MockReplica(name, answer_nothing) for name in "ab"]
        async with gateway(*replicas) as world:
            learn_quick_first_tokens(world)
            client = await world.connect()
            client.writer.write(request_bytes(STREAM))
            await world.until(lambda: all(one.requests for one in replicas))
            await client.close()
            await world.until(lambda: not any(one.sides for one in replicas))

    play(scenario())


def test_the_limit_learns_from_the_requests_in_flight_at_sending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observed: list[int] = []

    class Recorder:
        limit = 64

        def observe(self, in_flight: int, *_: float) -> None:
            observed.append(in_flight)

    monkeypatch.setattr(service_replicas, "ConcurrencyLimit", Recorder)

    async def scenario() -> None:
        waiting: list[tuple[Request, ReplicaSide]] = []
        replica = MockReplica("a", lambda *asked: waiting.append(asked))
        async with gateway(replica) as world:
            posts = []
            for number in range(1, 4):
                posts.append(asyncio.ensure_future(world.post(STREAM)))
                await world.until(lambda number=number: len(waiting) == number)  # type: ignore[misc]
            for request, side in waiting:
                answer_stream(1)(request, side)
                await asyncio.sleep(0.05)
            for post in posts:
                await post
            assert observed == [1, 2, 3]

    play(scenario())


def test_prefill_is_measured_from_the_previous_first_token_and_for_new_tokens() -> None:
    observed: list[tuple[int, float]] = []

    async def scenario() -> None:
        async with gateway(MockReplica("a")) as world:
            service = world.core.services["chat"]
            pool = service.pools["a"]

            class Rates:
                def prefill_seconds(self, tokens: float) -> float:
                    return 0.1

                def observe_first_token(self, tokens: int, seconds: float) -> None:
                    observed.append((tokens, round(seconds, 6)))

            pool.state.rates = Rates()  # type: ignore[assignment]
            attempts = [ReplicaAttempt(pool, 100, sent) for sent in (0.0, 0.1, 5.0)]
            for attempt, first_token in zip(attempts, (1.0, 1.5, 5.25), strict=True):
                attempt.note_first_byte()
                attempt.learn_first_token(service, first_token)
            attempts[1].learn_prefill(TokenCounts(800, 300, 7))
            attempts[0].learn_prefill(None)
            attempts[2].learn_prefill(None)
            for attempt in attempts:
                attempt.leave()

    play(scenario())
    assert observed == [(500, 0.5), (100, 1.0), (100, 0.25)]
