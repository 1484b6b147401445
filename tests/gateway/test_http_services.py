"""HTTP services by path and by host: bytes pass both ways, heads are written anew."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from corral.gateway.exchanges import routed_exchange
from corral.gateway.framing.forwarded_heads import rewritten_cookie, rewritten_location
from corral.wire.gateway_routes import RoutesFile
from tests.gateway.test_access import routes, with_callers
from tests.gateway.worlds import (
    Answer,
    Client,
    MockReplica,
    ReplicaSide,
    Request,
    answer_close,
    answer_nothing,
    answer_raw,
    chunk,
    gateway,
    play,
)

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
KEY = "Authorization: Bearer sk-alice\r\n"


async def ask(
    client: Client,
    path: str = "/services/chat/",
    *,
    method: str = "GET",
    host: str = "gateway",
    extra: str = "",
    body: bytes = b"",
) -> Answer:
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{extra}{length}\r\n"
    client.writer.write(head.encode() + body)
    return await client.answer()


def reset_and_close(request: Request, side: ReplicaSide) -> None:
    side.transport.abort()


@pytest.mark.parametrize("by_host", [False, True])
def test_a_request_reaches_the_service_with_its_head_and_body(by_host: bool) -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_raw(OK))
        async with gateway(replica, routes=with_callers) as world:
            client = await world.connect()
            path = (
                "/a%20b/c?x=1&y=%2F" if by_host else "/services/chat/a%20b/c?x=1&y=%2F"
            )
            host = "chat.example.org:8480" if by_host else "gateway"
            lines = (
                "Cookie: s=1\r\nX-Custom: 7\r\nAccept-Encoding: gzip\r\n"
                "Connection: keep-alive, X-Hop\r\nX-Hop: no\r\nTE: trailers\r\n"
                "X-Forwarded-For: 6.6.6.6\r\nX_Forwarded_Host: evil\r\n"
                "Forwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nProxy-X: no\r\n"
            )
            answer = await ask(
                client, path, method="PATCH", host=host, extra=KEY + lines, body=b"data"
            )
            await client.close()
            assert (answer.status, answer.body) == (200, b"ok")
        request = replica.requests[0]
        assert request.head.startswith(b"PATCH /a%20b/c?x=1&y=%2F HTTP/1.1\r\n")
        assert request.body == b"data"
        lines_seen = request.lines
        assert lines_seen[b"host"] == host.encode()
        assert lines_seen[b"cookie"] == b"s=1"
        assert lines_seen[b"x-custom"] == b"7"
        assert lines_seen[b"accept-encoding"] == b"gzip"
        assert lines_seen[b"authorization"] == b"Bearer engine-key"
        assert lines_seen[b"x-forwarded-for"] == b"127.0.0.1"
        assert lines_seen[b"x-forwarded-host"] == host.encode()
        assert lines_seen[b"x-forwarded-proto"] == b"http"
        prefix = None if by_host else b"/services/chat"
        assert lines_seen.get(b"x-forwarded-prefix") == prefix
        assert b"6.6.6.6" not in request.head
        assert b"evil" not in request.head
        assert b"sk-alice" not in request.head
        assert not {b"connection", b"x-hop", b"te", b"proxy-x"} & lines_seen.keys()

    play(scenario())


def test_who_may_not_use_a_service_sees_no_difference_to_none() -> None:
    async def scenario() -> None:
        def make(replicas: list[MockReplica]) -> RoutesFile:
            return routes([one.entry for one in replicas], allow=["alice"])

        replica = MockReplica("a", answer_raw(OK))
        async with gateway(replica, routes=make) as world:
            client = await world.connect()
            bob = "Authorization: Bearer sk-bob\r\n"
            for path, host in [
                ("/services/chat/", "gateway"),
                ("/x", "chat.example.org"),
                ("/services/none/", "gateway"),
                ("/x", "none.example.org"),
            ]:
                assert (await ask(client, path, host=host)).status == 401
                answer = await ask(client, path, host=host, extra=bob)
                assert (answer.status, answer.code) == (404, "not_found")
            assert (await ask(client, extra=KEY)).status == 200
            for path, host in [("/x", "chat"), ("/x", "127.0.0.1"), ("*", "chat.a.b")]:
                answer = await ask(client, path, host=host, extra=KEY, method="OPTIONS")
                assert answer.status == 404
            # the gateway's own endpoints are no service's, whatever the host
            answer = await ask(client, "/v1/models", host="chat.a.b", extra=KEY)
            assert answer.json["object"] == "list"
            for method in ("TRACE", "CONNECT"):
                answer = await ask(client, method=method, extra=KEY)
                assert answer.status == 405
            await client.close()
        assert len(replica.requests) == 1

    play(scenario())


def test_answers_pass_with_cookies_and_without_hop_by_hop_headers() -> None:
    async def scenario() -> None:
        head = (
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\nserver: app\r\n"
            b"set-cookie: a=1; Path=/; Domain=example.org; HttpOnly\r\n"
            b"set-cookie: b=2\r\ncontent-encoding: br\r\nkeep-alive: timeout=5\r\n"
            b'alt-svc: h3=":443"\r\nstrict-transport-security: max-age=9\r\n\r\nabc'
        )
        async with gateway(MockReplica("a", answer_raw(head))) as world:
            text = await world.raw(
                b"GET /services/chat/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
        assert text.startswith(b"HTTP/1.1 404 Not Found\r\n")
        assert b"set-cookie: a=1; Path=/services/chat/; HttpOnly\r\n" in text
        assert b"set-cookie: b=2\r\n" in text
        assert b"content-encoding: br\r\n" in text
        assert b"server: app\r\n" in text
        for absent in (b"keep-alive", b"alt-svc", b"strict-transport"):
            assert absent not in text
        assert text.endswith(b"\r\n\r\nabc")

    play(scenario())


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (b"/login?next=/x", b"/services/chat/login?next=/x"),
        (b"/services/chat/a", b"/services/chat/a"),
        (b"/services/chatter", b"/services/chat/services/chatter"),
        (b"next", b"next"),
        (b"?page=2", b"?page=2"),
        (b"http://10.0.0.1:9000/a?b#c", b"/services/chat/a?b#c"),
        (b"http://10.0.0.1:9000", b"/services/chat/"),
        (b"http://10.0.0.1:9000//evil.org/x", b"/services/chat/evil.org/x"),
        (b"//10.0.0.1:9000/a", b"/services/chat/a"),
        (b"http://user@10.0.0.1:9000/a", b"/services/chat/a"),
        (b"HTTP://GW.example.org/a", b"/services/chat/a"),
        (b"https://elsewhere.org/a", b"https://elsewhere.org/a"),
        (b"http://[bad/", b"/services/chat/"),
    ],
)
def test_redirects_never_lead_to_a_replica(location: bytes, expected: bytes) -> None:
    authorities = {b"10.0.0.1:9000", b"gw.example.org"}
    assert rewritten_location(location, b"/services/chat", authorities) == expected
    by_host = rewritten_location(location, b"", authorities)
    assert b"10.0.0.1" not in by_host
    assert b"[bad" not in by_host


def test_cookies_go_to_their_service_alone() -> None:
    prefix = b"/services/chat"
    assert rewritten_cookie(b"a=1; path=/x", prefix) == b"a=1; path=/services/chat/x"
    assert rewritten_cookie(b"a=1; Domain=.org", prefix) == b"a=1"
    assert rewritten_cookie(b"a=1; Path=/; Domain=.org", b"") == b"a=1; Path=/"


def test_a_redirect_of_the_service_is_rewritten_on_its_way() -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica) as world:
            to = f"http://127.0.0.1:{replica.port}/in".encode()
            replica.behave = answer_raw(
                b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\nlocation: %b\r\n\r\n" % to
            )
            client = await world.connect()
            answer = await ask(client)
            assert answer.headers["location"] == "/services/chat/in"
            answer = await ask(client, "/x", host="chat.a.b")
            assert answer.headers["location"] == "/in"
            await client.close()

    play(scenario())


class Upload(ReplicaSide):
    """Replica that keeps all bytes of one request."""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.buffer.endswith(b"0\r\n\r\n"):
            self.write(OK)


def test_a_chunked_upload_is_passed_on_as_it_comes() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", side=Upload)
        async with gateway(replica, body_bytes=100_000) as world:
            client = await world.connect()
            client.writer.write(
                b"POST /services/chat/up HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            assert await client.reader.readuntil(b"\r\n\r\n") == (
                b"HTTP/1.1 100 Continue\r\n\r\n"
            )
            client.writer.write(b"3;x=y\r\nabc\r\n")
            await world.until(lambda: any(b"abc" in s.buffer for s in replica.sides))
            client.writer.write(b"2\r\nde\r\n0\r\nT: 1\r\n\r\n")
            assert (await client.answer()).body == b"ok"
            side = next(iter(replica.sides))
            head, _, body = side.buffer.partition(b"\r\n\r\n")
            assert b"Transfer-Encoding: chunked" in head
            assert b"Content-Length" not in head
            assert body == b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
            # the connection goes on
            assert (await client.post(path="/v1/none")).status == 404
            client.writer.write(
                b"POST /services/chat/up HTTP/1.1\r\nHost: x\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"x" * 100_001)
            )
            assert (await client.answer()).status == 413
            await client.close()

    play(scenario())


def test_a_large_upload_waits_for_a_slow_replica() -> None:
    class Slow(ReplicaSide):
        def data_received(self, data: bytes) -> None:
            if not self.replica.received:
                self.transport.pause_reading()
            self.replica.received += len(data)
            if self.replica.received > SIZE:
                self.write(OK)

    SIZE = 40_000_000

    async def scenario() -> None:
        replica = MockReplica("a", side=Slow)
        async with gateway(replica, body_bytes=SIZE) as world:
            client = await world.connect()
            client.writer.write(
                b"PUT /services/chat/up HTTP/1.1\r\nHost: x\r\n"
                b"Content-Length: %d\r\n\r\n" % SIZE
            )
            client.writer.write(b"x" * SIZE)
            await world.until(lambda: replica.received > 0)
            # sockets' buffers fill, and then nothing more is taken from the client
            transport = client.writer.transport
            await world.until(
                lambda: transport.get_write_buffer_size() < SIZE - 100_000
            )
            before = -1
            while before != transport.get_write_buffer_size():
                before = transport.get_write_buffer_size()
                await asyncio.sleep(0.1)
            assert before > SIZE // 3
            next(iter(replica.sides)).transport.resume_reading()
            assert (await client.answer()).body == b"ok"
            await client.close()

    play(scenario())


def test_an_early_answer_ends_the_upload() -> None:
    class Early(ReplicaSide):
        def data_received(self, data: bytes) -> None:
            self.write(b"HTTP/1.1 413 Large\r\ncontent-length: 2\r\n\r\nno")

    async def scenario() -> None:
        replica = MockReplica("a", side=Early)
        async with gateway(replica) as world:
            client = await world.connect()
            client.writer.write(
                b"POST /services/chat/up HTTP/1.1\r\nHost: x\r\n"
                b"Content-Length: 1000000\r\n\r\nx"
            )
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (413, "close")
            # nothing else may be sent after half a body
            assert world.core.services["chat"].pools["a"].take_idle() is None
            await world.until(lambda: not replica.sides)
            assert await client.reader.read() == b""
            await client.close()

    play(scenario())


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_framing_of_answers(method: str, framing: str) -> None:
    async def scenario() -> None:
        lines = {
            "length": b"content-length: 5\r\n",
            "chunked": b"transfer-encoding: chunked\r\n",
        }
        body = chunk(b"hello") + b"0\r\n\r\n" if framing == "chunked" else b"hello"
        head = b"HTTP/1.1 200 OK\r\n%b\r\n" % lines.get(framing, b"")
        answer = head if method == "HEAD" else head + body
        replica = MockReplica("a", answer_raw(answer, closes=framing == "close"))
        async with gateway(replica) as world:
            text = await world.raw(
                f"{method} /services/chat/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
                + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            first, _, rest = text.partition(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain"
            )
            assert rest.endswith(b"ok\n")
            shown = first.partition(b"\r\n\r\n")[2]
            if method == "HEAD":
                assert shown == b""
            elif framing == "length":
                assert shown == b"hello"
            else:
                assert shown == chunk(b"hello") + b"0\r\n\r\n"
            assert (b"Content-Length: 5" in first) is (framing == "length")
            old = await world.raw(f"{method} /services/chat/ HTTP/1.0\r\n\r\n".encode())
            assert old.endswith(b"\r\n\r\n" if method == "HEAD" else b"\r\n\r\nhello")

    play(scenario())


@pytest.mark.parametrize(
    ("method", "behave", "status"),
    [
        ("GET", answer_close, 200),
        ("PUT", reset_and_close, 200),
        ("POST", answer_close, 502),
        ("GET", answer_raw(b"nonsense\r\n\r\n"), 200),
        ("POST", answer_raw(b"nonsense\r\n\r\n"), 502),
    ],
)
def test_only_what_may_be_sent_twice_is(
    method: str, behave: Callable[[Request, ReplicaSide], None], status: int
) -> None:
    async def scenario() -> None:
        bad = MockReplica("a", behave)
        good = MockReplica("b", answer_raw(OK))
        async with gateway(bad, good) as world:
            client = await world.connect()
            seen = set()
            for _ in range(4):
                seen.add((await ask(client, method=method, body=b"x")).status)
                if bad.requests:
                    break
            assert seen - {200} == {status} - {200}
            assert len(bad.requests) == 1
            await client.close()

    play(scenario())


def test_a_dead_replica_fails_no_request_of_any_method() -> None:
    async def scenario() -> None:
        replicas = [MockReplica(name, answer_raw(OK)) for name in "abcde"]
        async with gateway(*replicas) as world:
            for replica in replicas[1:]:
                replica.kill()
            client = await world.connect()
            for _ in range(8):
                assert (await ask(client, method="POST", body=b"x")).status == 200
            await client.close()

    play(scenario())


def test_an_idle_connection_that_closes_fails_no_request() -> None:
    class Impatient(ReplicaSide):
        """Replica that ends each connection with its second request."""

        def data_received(self, data: bytes) -> None:
            if self.buffer:
                self.close()
                return
            self.buffer = data
            self.replica.received += 1
            self.write(OK)

    async def scenario() -> None:
        replica = MockReplica("a", side=Impatient)
        async with gateway(replica) as world:
            client = await world.connect()
            for method in ("GET", "GET", "POST", "PUT", "POST", "HEAD", "GET"):
                head = f"{method} /services/chat/ HTTP/1.1\r\nHost: x\r\n"
                client.writer.write(f"{head}Content-Length: 0\r\n\r\n".encode())
                text = await client.reader.readuntil(b"\r\n\r\n")
                assert text.startswith(b"HTTP/1.1 200 OK\r\n")
                if method != "HEAD":
                    assert await client.reader.readexactly(2) == b"ok"
            assert replica.received == 7
            await client.close()

    play(scenario())


def test_requests_go_where_the_fewest_are_under_way() -> None:
    async def scenario() -> None:
        replicas = [MockReplica(name, answer_nothing) for name in "abc"]
        async with gateway(*replicas) as world:
            clients = [await world.connect() for _ in range(9)]
            for client in clients:
                client.writer.write(b"GET /services/chat/ HTTP/1.1\r\nHost: x\r\n\r\n")
            await world.until(
                lambda: [len(replica.requests) for replica in replicas] == [3, 3, 3]
            )
            for client in clients:
                await client.close()
            await world.until(lambda: not world.core.active)
            assert world.metrics.client_gone == 9

    play(scenario())


def test_without_a_replica_the_request_waits_and_its_body_too() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_raw(OK))
        await replica.start()

        def empty(_: list[MockReplica]) -> RoutesFile:
            return msgspec.structs.replace(routes([], ()), open=True)

        async with gateway(routes=empty) as world:
            client = await world.connect()
            waiting = asyncio.ensure_future(ask(client, method="POST", body=b"x" * 999))
            await world.until(lambda: world.core.services["chat"].waiting == 1)
            state = msgspec.structs.replace(routes([replica.entry], (), 2), open=True)
            world.core.update_routes(state)
            assert (await waiting).body == b"ok"
            await client.close()
            assert replica.requests[0].body == b"x" * 999
        replica.kill()

    play(scenario())


def test_deadlines_of_uploads_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routed_exchange, "BODY_SILENCE_SECONDS", 0.2)

    async def scenario() -> None:
        replica = MockReplica("a", answer_nothing)
        async with gateway(replica, deadline_seconds=0.3) as world:
            client = await world.connect()
            answer = await ask(client)
            assert (answer.status, answer.code) == (504, "deadline_exceeded")
            client.writer.write(
                b"POST /services/chat/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx"
            )
            answer = await client.answer()
            assert (answer.status, answer.code) == (408, "request_timeout")
            await client.close()

    play(scenario())


def test_limits_hold_and_reported_tokens_count() -> None:
    async def scenario() -> None:
        def make(replicas: list[MockReplica]) -> RoutesFile:
            state = routes([one.entry for one in replicas])
            callers = [
                msgspec.structs.replace(one, concurrency=1) for one in state.callers
            ]
            return msgspec.structs.replace(state, callers=tuple(callers))

        replica = MockReplica("a", answer_nothing)
        async with gateway(replica, routes=make) as world:
            first, second = await world.connect(), await world.connect()
            first.writer.write(
                f"GET /services/chat/ HTTP/1.1\r\nHost: x\r\n{KEY}\r\n".encode()
            )
            await world.until(lambda: bool(replica.requests))
            answer = await ask(second, extra=KEY)
            assert (answer.status, answer.code) == (429, "rate_limit_exceeded")
            await first.close()
            await world.until(lambda: not world.core.active)
            body = b'{"usage": {"prompt_tokens": 5, "completion_tokens": 2}}'
            replica.behave = answer_raw(
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            assert (await ask(second, extra=KEY)).body == body
            sums = world.total.tokens["alice"]
            assert (sums.prompt, sums.output) == (5, 2)
            await second.close()

    play(scenario())


def test_an_answer_of_a_revoked_key_is_cut_and_one_of_a_lost_replica_too() -> None:
    async def scenario() -> None:
        part = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx"
        replica = MockReplica("a", answer_raw(part))
        async with gateway(replica, routes=with_callers) as world:
            for end in ("kill", "revoke"):
                client = await world.connect()
                client.writer.write(
                    f"GET /services/chat/ HTTP/1.1\r\nHost: x\r\n{KEY}\r\n".encode()
                )
                await client.reader.readuntil(b"\r\n\r\n")
                if end == "kill":
                    for side in list(replica.sides):
                        side.close()
                else:
                    state = routes([replica.entry], ("bob",), 2)
                    world.core.update_routes(state)
                assert await client.reader.read() in (b"x", b"")
                await client.close()
                await world.until(lambda: not replica.sides)

    play(scenario())
