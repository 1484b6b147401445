"""Replicas that fail: no request is lost while it can be sent elsewhere."""

import asyncio

import pytest

from corral.gateway.replicas import service_replicas
from corral.gateway.replicas.replica_connection import LossKind
from corral.route import outlier_ejection
from corral.route.concurrency_limit import ConcurrencyLimit
from tests.gateway.worlds import (
    STREAM_HEAD,
    MockReplica,
    ReplicaSide,
    Request,
    answer_close,
    answer_json,
    answer_nothing,
    answer_raw,
    answer_stream,
    chunk,
    event,
    gateway,
    json_bytes,
    play,
    routes_of,
)

STREAM = {"model": "chat", "messages": [], "stream": True}


def answer_after(seconds: float) -> "object":
    def behave(request: Request, side: ReplicaSide) -> None:
        async def send() -> None:
            await asyncio.sleep(seconds)
            side.write(json_bytes())

        side.start(send())

    return behave


def test_a_replica_killed_under_load_fails_no_request() -> None:
    async def scenario() -> None:
        replicas = [MockReplica(name, answer_after(0.02)) for name in "abc"]  # type: ignore[arg-type]
        async with gateway(*replicas) as world:
            statuses: list[int] = []

            async def client() -> None:
                connection = await world.connect()
                for _ in range(30):
                    statuses.append((await connection.post()).status)
                await connection.close()

            async def kill() -> None:
                await world.until(lambda: len(statuses) > 100)
                await world.until(lambda: len(world.core.active) >= 12)
                states = world.core.services["chat"].states
                busiest = max(states, key=lambda state: state.in_flight)
                assert busiest.in_flight
                next(one for one in replicas if one.name == busiest.name).kill()

            await asyncio.gather(*(client() for _ in range(24)), kill())
            assert statuses == [200] * 720
            assert world.metrics.retries > 0
            assert world.metrics.ejections == 1

    play(scenario())


@pytest.mark.parametrize(
    "first",
    [
        answer_close,
        answer_raw(b"HTTP/1.1 200 OK\r\ncontent-le", closes=True),
        answer_raw(json_bytes()[:-10], closes=True),
        answer_raw(json_bytes(status="503 Service Unavailable")),
        answer_raw(json_bytes(status="502 Bad Gateway")),
        answer_raw(json_bytes(status="429 Too Many Requests")),
        answer_raw(json_bytes(status="401 Unauthorized")),
        answer_raw(json_bytes(status="302 Found", extra="location: http://head/\r\n")),
        answer_raw(json_bytes(extra="content-encoding: gzip\r\n")),
        answer_raw(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000),
        answer_raw(b"HTTP/1.1 200 OK\r\n" + b"content-length: 2\r\n" * 2 + b"\r\n{}"),
        answer_raw(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"
            b"transfer-encoding: chunked\r\n\r\n{}"
        ),
        answer_raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
        answer_raw(b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n{}"),
        answer_raw(b"HTTP/1.1 200 OK\ncontent-length: 2\n\n{}", closes=True),
        answer_raw(b"HTTP/1.1 200 OK\r\nx-a: 1\r\n folded\r\n\r\n"),
        answer_raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 20),
        answer_raw(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        answer_raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    ],
)
def test_a_faulty_answer_is_replaced_by_that_of_another_replica(first: object) -> None:
    async def scenario() -> None:
        replicas = [MockReplica("a"), MockReplica("b")]
        calls = 0

        def behave(request: Request, side: ReplicaSide) -> None:
            nonlocal calls
            calls += 1
            (first if calls == 1 else answer_json)(request, side)  # type: ignore[operator]

        for replica in replicas:
            replica.behave = behave
        async with gateway(*replicas) as world:
            answer = await world.post()
            assert (answer.status, calls) == (200, 2), answer.body
            assert world.metrics.retries == 1
            assert len({len(replica.requests) for replica in replicas}) == 1

    play(scenario())


@pytest.mark.parametrize(
    ("behave", "status", "code"),
    [
        (answer_close, 502, "replica_lost"),
        (answer_raw(json_bytes(status="302 Found")), 502, "bad_answer"),
        (answer_raw(json_bytes(status="401 Unauthorized")), 503, "overloaded"),
        (answer_raw(b"nonsense\r\n\r\n"), 502, "bad_answer"),
    ],
)
def test_without_a_sound_replica_the_error_says_what_happened(
    behave: object, status: int, code: str
) -> None:
    async def scenario() -> None:
        replica = MockReplica("a", behave)  # type: ignore[arg-type]
        async with gateway(replica, deadline_seconds=0.3) as world:
            answer = await world.post()
            assert (answer.status, answer.code) == (status, code)

    play(scenario())


def test_errors_of_the_engine_pass_unchanged() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica) as world:
            for status in ("400 Bad Request", "404 Not Found", "500 Oops"):
                replica.behave = answer_raw(json_bytes(text="why", status=status))
                answer = await world.post()
                assert answer.status == int(status[:3])
                assert b"why" in answer.body

    play(scenario())


def test_bytes_beyond_the_length_do_not_reach_the_next_answer() -> None:
    async def scenario() -> None:
        lying = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" + json_bytes("evil")
        replica = MockReplica("a", answer_raw(lying))
        async with gateway(replica) as world:
            client = await world.connect()
            for _ in range(3):
                assert (await client.post()).body == b"{}"
            await client.close()
            assert replica.connections == 3

    play(scenario())


def test_an_answer_without_a_question_closes_the_connection() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica) as world:
            await world.post()
            for side in list(replica.sides):
                side.write(json_bytes("evil"))
            await world.until(lambda: not replica.sides)
            answer = await world.post()
            assert b"evil" not in answer.body

    play(scenario())


def test_an_idle_connection_that_the_replica_closed_is_replaced() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica) as world:
            client = await world.connect()
            for _ in range(10):
                assert (await client.post()).status == 200
                replica.behave = answer_json
                for side in list(replica.sides):
                    side.close()
            assert world.total.requests == {200: 10}
            assert world.metrics.ejections == 0
            await client.close()

    play(scenario())


def cut_after(events: int) -> "object":
    def behave(request: Request, side: ReplicaSide) -> None:
        side.write(STREAM_HEAD)
        for number in range(events):
            side.write(chunk(event(f"w{number}")))
        side.write(b"20\r\ndata: {half an ev")
        side.close()

    return behave


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_cut_stream_ends_with_a_typed_error_and_no_done(path: str) -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a", cut_after(3))) as world:  # type: ignore[arg-type]
            client = await world.connect()
            answer = await client.post(STREAM, path)
            assert answer.is_whole
            assert b"half" not in answer.body
            assert b"[DONE]" not in answer.body
            last = answer.events[-1]
            assert '"code":"replica_lost"' in last
            assert '"tokens":3' in last
            assert last.startswith("event: error\n") == (path == "/v1/messages")
            assert world.metrics.streams_lost == 1
            # the connection of the client goes on
            world.replicas[0].behave = answer_json
            assert (await client.post()).status == 200
            await client.close()

    play(scenario())


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_stream_without_a_length_is_whole_only_with_done(is_whole: bool) -> None:
    async def scenario() -> None:
        head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        done = b"data: [DONE]\n\n" if is_whole else b""
        data = head + event("w0") + event("w1") + done
        async with gateway(MockReplica("a", answer_raw(data, closes=True))) as world:
            answer = await world.post(STREAM)
            last = answer.events[-1]
            assert last == "[DONE]" if is_whole else '"code":"replica_lost"' in last
            assert world.metrics.streams_lost == (not is_whole)

    play(scenario())


def test_a_stream_that_stops_ends_with_a_typed_error() -> None:
    async def scenario() -> None:
        head = STREAM_HEAD + chunk(event("w0"))
        replica = MockReplica("a", answer_raw(head))
        async with gateway(replica, deadline_seconds=0.3) as world:
            answer = await world.post(STREAM)
            assert '"replica_lost"' in answer.events[-1]
            await world.until(lambda: len(replica.closed_at) == 1)

    play(scenario())


def test_a_large_answer_that_is_cut_is_seen_to_be_cut() -> None:
    async def scenario() -> None:
        data = b"HTTP/1.1 200 OK\r\ncontent-length: 500000\r\n\r\n" + b"x" * 200_000
        async with gateway(MockReplica("a", answer_raw(data, closes=True))) as world:
            answer = await world.post()
            assert not answer.is_whole
            assert 0 < len(answer.body) <= 200_000

    play(scenario())


def test_done_twice_passes_once() -> None:
    async def scenario() -> None:
        done = chunk(b"data: [DONE]\n\n")
        text = STREAM_HEAD + chunk(event("a")) + done + done + b"0\r\n\r\n"
        async with gateway(MockReplica("a", answer_raw(text))) as world:
            answer = await world.post(STREAM)
            assert answer.events.count("[DONE]") == 1
            assert answer.is_whole

    play(scenario())


def test_a_hung_replica_is_left_at_the_deadline() -> None:
    async def scenario() -> None:
        replicas = [MockReplica("a"), MockReplica("b")]
        hung: list[str] = []

        def behave(request: Request, side: ReplicaSide) -> None:
            hung.append(side.replica.name)
            (answer_nothing if len(hung) == 1 else answer_stream(2))(request, side)

        for replica in replicas:
            replica.behave = behave
        async with gateway(*replicas, deadline_seconds=0.3) as world:
            answer = await world.post(STREAM)
            assert answer.events[-1] == "[DONE]"
            assert len(set(hung)) == 2
            first = next(one for one in replicas if one.name == hung[0])
            await world.until(lambda: not first.sides)

    play(scenario())


def test_when_all_hang_the_request_ends_at_twice_the_deadline() -> None:
    async def scenario() -> None:
        replicas = [MockReplica(name, answer_nothing) for name in "abc"]
        async with gateway(*replicas, deadline_seconds=0.2) as world:
            answer = await world.post(STREAM)
            assert (answer.status, answer.code) == (504, "deadline_exceeded")

    play(scenario())


def test_a_dead_replica_returns_after_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlier_ejection, "PROBE_FIRST_SECONDS", 0.2)

    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica) as world:
            await world.post()
            replica.kill()
            # the only replica is away: the request waits for it
            waiting = asyncio.ensure_future(world.post())
            await world.until(lambda: world.metrics.ejections == 1)
            await replica.start()
            assert (await waiting).status == 200
            probe = replica.requests[1]
            assert probe.json["max_tokens"] == 1
            assert probe.lines[b"x-request-id"] == b"corral-probe"

    play(scenario())


def test_a_request_that_replicas_die_of_is_quarantined() -> None:
    async def scenario() -> None:
        poison = {"model": "chat", "messages": ["poison"]}

        def behave(request: Request, side: ReplicaSide) -> None:
            if b"poison" in request.body:
                side.replica.kill()
            else:
                side.write(json_bytes())

        replicas = [MockReplica(name, behave) for name in "abcd"]
        async with gateway(*replicas) as world:
            for _ in range(4):
                answer = await world.post(poison)
                if answer.status == 422:
                    break
            assert answer.code == "request_quarantined"
            assert (await world.post()).status == 200

    play(scenario())


def test_a_request_that_is_cut_before_the_guilty_one_is_not_blamed_alone() -> None:
    """A dead replica may refuse connections before the kernel has cut those of all its
    requests."""

    async def scenario() -> None:
        poison, neighbour = 1, 2
        async with gateway(*(MockReplica(name) for name in "abcd")) as world:
            service = world.core.services["chat"]
            service.in_flight_at = lambda pool: [poison]
            for pool in list(service.pools.values())[:2]:
                pool.note_loss(neighbour, world.core.now())
                service.note_failure(pool, LossKind.REFUSED, world.core.now())
            assert not service.is_quarantined(neighbour, world.core.now())

    play(scenario())


def test_requests_under_way_at_a_replica_are_known() -> None:
    async def scenario() -> None:
        sides: list[ReplicaSide] = []
        replicas = [
            MockReplica(name, lambda request, side: sides.append(side)) for name in "ab"
        ]
        async with gateway(*replicas) as world:
            asking = asyncio.ensure_future(world.post())
            await world.until(lambda: bool(sides))
            service = world.core.services["chat"]
            counts = {
                pool.entry.name: len(list(service.in_flight_at(pool)))
                for pool in service.pools.values()
            }
            assert counts == {one.name: len(one.requests) for one in replicas}
            sides[0].write(json_bytes())
            assert (await asking).status == 200

    play(scenario())


def test_requests_wait_in_the_gateway_and_are_shed_when_it_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        service_replicas, "ConcurrencyLimit", lambda: ConcurrencyLimit(initial=2)
    )

    async def scenario() -> None:
        replica = MockReplica("a", answer_after(0.1))  # type: ignore[arg-type]
        async with gateway(replica, queue_requests=3) as world:
            posts = [asyncio.ensure_future(world.post()) for _ in range(8)]
            answers = [await post for post in posts]
            statuses = sorted(answer.status for answer in answers)
            assert statuses == [200] * 5 + [503] * 3
            shed = next(answer for answer in answers if answer.status == 503)
            assert shed.code == "overloaded"
            assert int(shed.headers["retry-after"]) >= 1
            assert len(replica.requests) == 5

    play(scenario())


def test_a_request_that_waits_too_long_is_refused() -> None:
    async def scenario() -> None:
        async with gateway(deadline_seconds=0.2) as world:
            answer = await world.post()
            assert (answer.status, answer.code) == (503, "overloaded")

    play(scenario())


def test_routes_change_without_losing_a_request() -> None:
    async def scenario() -> None:
        replicas = [MockReplica(name, answer_stream(20, 0.01)) for name in "abc"]
        async with gateway(*replicas) as world:
            posts = [asyncio.ensure_future(world.post(STREAM)) for _ in range(12)]
            await world.until(lambda: len(world.core.active) == 12)
            for version in range(2, 30):
                chosen = [replicas[version % 3], replicas[(version + 1) % 3]]
                world.core.update_routes(routes_of(chosen, version=version))
                await asyncio.sleep(0.005)
            for post in posts:
                assert (await post).events[-1] == "[DONE]"
            world.core.update_routes(routes_of(replicas[:1], version=40))
            for _ in range(5):
                assert (await world.post(STREAM)).status == 200
            await world.until(lambda: not replicas[1].sides and not replicas[2].sides)

    play(scenario())


def test_a_request_waits_for_a_replica_that_the_routes_bring() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        await replica.start()
        async with gateway() as world:
            waiting = asyncio.ensure_future(world.post())
            await world.until(lambda: len(world.core.active) == 1)
            world.core.update_routes(routes_of([replica], version=2))
            assert (await waiting).status == 200
        replica.kill()

    play(scenario())


def test_a_withdrawn_service_ends_its_requests_and_takes_no_more() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_stream(20, 0.01))
        async with gateway(replica) as world:
            stream = asyncio.ensure_future(world.post(STREAM))
            await world.until(lambda: len(world.core.active) == 1)
            routes = routes_of([], version=2)
            world.core.update_routes(type(routes)(version=2, open=True))
            assert (await stream).events[-1] == "[DONE]"
            assert (await world.post()).status == 404

    play(scenario())
