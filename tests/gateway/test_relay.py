"""One request through the gateway and back, on real sockets."""

import asyncio
from hashlib import sha256

import msgspec
import pytest

from corral.wire.gateway_routes import RoutesFile
from tests.gateway.worlds import (
    CHAT,
    MockReplica,
    answer_nothing,
    answer_raw,
    answer_stream,
    gateway,
    json_bytes,
    play,
    request_bytes,
)

STREAM = {"model": "chat", "messages": [], "stream": True}


def test_a_request_reaches_a_replica_and_its_answer_comes_back() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica) as world:
            answer = await world.post({"model": "org/name", "messages": ["x"]})
            assert answer.status == 200
            assert answer.json["choices"][0]["message"]["content"] == "hello"
            assert replica.requests[0].json == {"model": "org/name", "messages": ["x"]}
            assert world.total.requests == {200: 1}
            assert world.total.token_sums.prompt == 10
            assert world.total.token_sums.cached == 4
            assert world.total.token_sums.output == 3

    play(scenario())


def test_only_named_headers_reach_the_replica() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
        async with gateway(replica) as world:
            client = await world.connect()
            answer = await client.post(
                extra=f"Authorization: Bearer client\r\nCookie: secret\r\n"
                f"X-Forwarded-For: 1.2.3.4\r\ntraceparent: {trace}\r\n"
                "x-request-id: mine-1\r\nAccept-Encoding: gzip\r\n"
            )
            await client.close()
        lines = replica.requests[0].lines
        assert sorted(lines) == sorted(
            b"host content-type accept authorization content-length x-request-id "
            b"traceparent".split()
        )
        assert lines[b"authorization"] == b"Bearer engine-key"
        assert lines[b"x-request-id"] == b"mine-1"
        assert lines[b"traceparent"] == trace.encode()
        assert answer.headers["x-request-id"] == "mine-1"

    play(scenario())


def test_hop_by_hop_headers_of_an_answer_do_not_pass() -> None:
    async def scenario() -> None:
        extra = "x-engine: 1\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: 5\r\n"
        replica = MockReplica("a", answer_raw(json_bytes(extra=extra)))
        async with gateway(replica) as world:
            headers = (await world.post()).headers
        assert headers["x-engine"] == "1"
        assert not headers.keys() & {"x-hop", "keep-alive", "connection"}

    play(scenario())


def test_a_stream_passes_event_by_event() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_stream(20))
        async with gateway(replica) as world:
            answer = await world.post(STREAM)
            assert answer.is_whole
            assert len(answer.events) == 21
            assert answer.events[-1] == "[DONE]"
            assert world.total.token_sums.output == 20
            assert sum(world.total.ttft.counts) == 1

    play(scenario())


def test_events_that_come_in_pieces_pass_whole() -> None:
    async def scenario() -> None:
        text = b'data: {"a": 1}\n\ndata: {"b": 2}\r\n\r\ndata: [DONE]\n\n'

        def behave(request: object, side: object) -> None:
            async def send() -> None:
                side.write(  # type: ignore[attr-defined]
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n"
                )
                for index in range(len(text)):
                    side.write(b"1\r\n%b\r\n" % text[index : index + 1])  # type: ignore[attr-defined]
                    await asyncio.sleep(0.001)
                side.write(b"0\r\n\r\n")  # type: ignore[attr-defined]

            side.start(send())  # type: ignore[attr-defined]

        async with gateway(MockReplica("a", behave)) as world:
            answer = await world.post(STREAM)
            assert answer.body == text
            assert answer.is_whole

    play(scenario())


def test_one_connection_carries_many_requests_to_few_connections() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica) as world:
            client = await world.connect()
            for _ in range(20):
                assert (await client.post()).status == 200
            await client.close()
            assert replica.connections == 1
            assert len(replica.requests) == 20

    play(scenario())


def test_pipelined_requests_are_answered_in_their_order() -> None:
    async def scenario() -> None:
        def echo(request: object, side: object) -> None:
            text = request.json["messages"][0]  # type: ignore[attr-defined]
            side.write(json_bytes(text))  # type: ignore[attr-defined]

        async with gateway(MockReplica("a", echo), MockReplica("b", echo)) as world:
            client = await world.connect()
            bodies = [{"model": "chat", "messages": [f"m{n}"]} for n in range(300)]
            client.writer.write(b"".join(request_bytes(body) for body in bodies))
            for number in range(300):
                text = (await client.answer()).json["choices"][0]["message"]["content"]
                assert text == f"m{number}"
            await client.close()

    play(scenario())


def test_many_pipelined_refusals_do_not_exhaust_the_stack() -> None:
    async def scenario() -> None:
        async with gateway() as world:
            client = await world.connect()
            client.writer.write(request_bytes({"model": "x"}) * 3000)
            for _ in range(3000):
                assert (await client.answer()).status == 404
            await client.close()

    play(scenario())


@pytest.mark.parametrize("stream", [True, False])
def test_http10_gets_an_answer_that_ends_by_closing(stream: bool) -> None:
    async def scenario() -> None:
        behave = answer_stream(3) if stream else answer_raw(json_bytes())
        async with gateway(MockReplica("a", behave)) as world:
            data = request_bytes(STREAM).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
            head, _, body = (await world.raw(data)).partition(b"\r\n\r\n")
            assert b"Connection: close" in head
            assert b"chunked" not in head
            assert body.endswith(b"data: [DONE]\n\n" if stream else b"}")

    play(scenario())


def test_expect_continue_is_answered_before_the_body() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica) as world:
            client = await world.connect()
            data = request_bytes(extra="Expect: 100-continue\r\n")
            head, _, body = data.partition(b"\r\n\r\n")
            client.writer.write(head + b"\r\n\r\n")
            line = await client.reader.readuntil(b"\r\n\r\n")
            assert line == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.writer.write(body)
            assert (await client.answer()).status == 200
            await client.close()

    play(scenario())


def test_a_chunked_body_becomes_one_of_known_length() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica) as world:
            client = await world.connect()
            client.writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            for part in (b'{"model"', b': "chat"', b"}"):
                await asyncio.sleep(0.005)
                client.writer.write(b"%x;name=value\r\n%b\r\n" % (len(part), part))
            client.writer.write(b"0\r\nTrailer: x\r\n\r\n" + request_bytes())
            assert (await client.answer()).status == 200
            assert (await client.answer()).status == 200
            await client.close()
        assert replica.requests[0].body == b'{"model": "chat"}'

    play(scenario())


def test_a_large_answer_passes_and_a_small_one_has_its_length() -> None:
    async def scenario() -> None:
        size = 3_000_000
        body = b'{"x":"' + b"y" * size + b'"}'
        raw = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        async with gateway(MockReplica("a", answer_raw(raw))) as world:
            answer = await world.post()
            assert answer.body == body
            assert answer.headers["transfer-encoding"] == "chunked"

    play(scenario())


def test_models_health_and_metrics_are_answered_by_the_gateway() -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a")) as world:
            client = await world.connect()
            await client.post()
            models = (await client.get("/v1/models")).json["data"]
            assert [model["id"] for model in models] == ["chat", "org/name"]
            one = (await client.get("/v1/models/org%2Fname")).json
            assert one == models[1] == (await client.get("/v1/models/org/name")).json
            assert (await client.get("/v1/models/other")).code == "model_not_found"
            assert (await client.get("/healthz")).body == b"ok\n"
            text = (await client.get("/metrics")).body.decode()
            assert 'requests_total{service="chat",code="200"} 1' in text
            assert 'ttft_seconds_count{service="chat"} 1' in text
            assert (await client.get("/nothing")).code == "not_found"
            assert (await client.get(CHAT)).code == "method_not_allowed"
            await client.close()

    play(scenario())


def routes_with_keys(replica: MockReplica) -> RoutesFile:
    def service(name: str, allow: list[str] | None) -> dict[str, object]:
        return {
            "name": name,
            "models": [name],
            "replicas": [replica.entry],
            "allow": allow,
        }

    def caller(name: str, **limits: object) -> dict[str, object]:
        key = sha256(f"sk-{name}".encode()).hexdigest()
        return {"name": name, "key_sha256": key, **limits}

    state = {
        "version": 1,
        "services": [service("chat", None), service("secret-model", ["alice"])],
        "callers": [
            caller("alice"),
            caller("bob", requests_per_minute=3),
            caller("carol", concurrency=1),
        ],
    }
    return msgspec.convert(state, RoutesFile)


def test_keys_decide_who_may_call_what() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        await replica.start()
        async with gateway(routes=routes_with_keys(replica)) as world:
            client = await world.connect()
            assert (await client.post()).code == "invalid_api_key"
            wrong = await client.post(extra="Authorization: Bearer sk-mallory\r\n")
            assert (wrong.status, wrong.code) == (401, "invalid_api_key")
            alice = "Authorization: Bearer sk-alice\r\n"
            assert (await client.post(extra=alice)).status == 200
            assert (await client.post(extra="x-api-key: sk-alice\r\n")).status == 200
            body = {"model": "secret-model"}
            assert (await client.post(body, extra=alice)).status == 200
            bob = "Authorization: Bearer sk-bob\r\n"
            hidden = await client.post(body, extra=bob)
            unknown = await client.post({"model": "secret-modem"}, extra=bob)
            assert hidden.status == unknown.status == 404
            assert (
                hidden.json["error"]["message"].replace("model'", "modem'")
                == (unknown.json["error"]["message"])
            )
            models = (await client.get("/v1/models", bob)).json["data"]
            assert [model["id"] for model in models] == ["chat"]
            metrics = (await client.get("/metrics", bob)).body
            assert b"secret-model" not in metrics
            assert (await client.get("/healthz")).status == 200
            await client.close()
        replica.kill()

    play(scenario())


def test_limits_of_a_caller_hold() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        await replica.start()
        async with gateway(routes=routes_with_keys(replica)) as world:
            client = await world.connect()
            bob = "Authorization: Bearer sk-bob\r\n"
            statuses = [(await client.post(extra=bob)).status for _ in range(4)]
            assert statuses == [200, 200, 200, 429]
            refusal = await client.post(extra=bob)
            assert refusal.code == "rate_limit_exceeded"
            assert int(refusal.headers["retry-after"]) >= 1
            replica.behave = answer_nothing
            carol = "Authorization: Bearer sk-carol\r\n"
            first = await world.connect()
            first.writer.write(request_bytes(extra=carol))
            await world.until(lambda: len(world.core.active) == 1)
            assert (await client.post(extra=carol)).status == 429
            await first.close()
            await world.until(lambda: not world.core.active)
            replica.behave = answer_raw(json_bytes())
            assert (await client.post(extra=carol)).status == 200
            await client.close()
        replica.kill()

    play(scenario())
