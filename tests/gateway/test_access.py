"""Callers who are gone, replicas that drain, revisions, and canaries."""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from corral.wire.gateway_routes import RoutesFile
from tests.gateway.worlds import (
    STREAM_HEAD,
    Answer,
    MockReplica,
    ReplicaSide,
    Request,
    World,
    answer_json,
    answer_nothing,
    answer_stream,
    chunk,
    gateway,
    json_bytes,
    play,
)

STREAM = {"model": "chat", "messages": [], "stream": True}


def routes(
    replicas: list[dict[str, object]],
    callers: tuple[str, ...] = ("alice", "bob"),
    version: int = 1,
    **service: object,
) -> RoutesFile:
    state = {
        "version": version,
        "services": [
            {"name": "chat", "models": ["chat"], "replicas": replicas, **service}
        ],
        "callers": [
            {"name": name, "key_sha256": sha256(f"sk-{name}".encode()).hexdigest()}
            for name in callers
        ],
    }
    return msgspec.convert(state, RoutesFile)


def with_callers(replicas: list[MockReplica]) -> RoutesFile:
    return routes([replica.entry for replica in replicas])


async def post(world: World, name: str, body: object = None) -> Answer:
    client = await world.connect()
    try:
        return await client.post(body, extra=f"Authorization: Bearer sk-{name}\r\n")
    finally:
        await client.close()


def large_part(request: Request, side: ReplicaSide) -> None:
    side.write(b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n" + b"x" * 200_000)


@pytest.mark.parametrize("change", ["caller", "allow"])
def test_streams_of_a_revoked_key_are_cut_within_a_second(change: str) -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_stream(300, 0.01))
        async with gateway(replica, routes=with_callers) as world:
            cut = asyncio.ensure_future(post(world, "alice", STREAM))
            whole = asyncio.ensure_future(post(world, "bob", STREAM))
            await world.until(lambda: len(replica.requests) == 2)
            await asyncio.sleep(0.05)
            start = world.core.now()
            if change == "caller":
                state = routes([replica.entry], ("bob",), 2)
            else:
                state = routes([replica.entry], version=2, allow=["bob"])
            world.core.update_routes(state)
            answer = await cut
            assert world.core.now() - start < 1.0
            assert '"code":"key_revoked"' in answer.events[-1]
            assert "[DONE]" not in answer.events
            await world.until(lambda: len(replica.sides) == 1)
            assert (await whole).events[-1] == "[DONE]"
            assert (await post(world, "alice", STREAM)).status in (401, 404)
            assert world.metrics.streams_lost == 0

    play(scenario())


@pytest.mark.parametrize("behave", [answer_nothing, large_part, None])
def test_any_request_of_a_revoked_key_ends(behave: Any) -> None:
    async def scenario() -> None:
        replicas = [] if behave is None else [MockReplica("a", behave)]
        async with gateway(*replicas, routes=with_callers) as world:
            entries = [replica.entry for replica in replicas]
            client = await world.connect()
            asked = client.post(extra="Authorization: Bearer sk-alice\r\n")
            waiting = asyncio.ensure_future(asked)
            await world.until(lambda: len(world.core.active) == 1)
            await asyncio.sleep(0.05)
            world.core.update_routes(routes(entries, ("bob",), 2))
            answer = await waiting
            assert not world.core.active
            if behave is large_part:
                assert not answer.is_whole
            else:
                assert (answer.status, answer.code) == (401, "key_revoked")
            await client.close()

    play(scenario())


def test_a_changed_limit_of_a_caller_cuts_nothing() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_stream(20, 0.01))
        async with gateway(replica, routes=with_callers) as world:
            stream = asyncio.ensure_future(post(world, "alice", STREAM))
            await world.until(lambda: bool(replica.requests))
            state = routes([replica.entry], version=2)
            callers = [
                msgspec.structs.replace(one, priority="low") for one in state.callers
            ]
            state = msgspec.structs.replace(state, callers=tuple(callers))
            world.core.update_routes(state)
            assert (await stream).events[-1] == "[DONE]"

    play(scenario())


def open_routes(entries: list[dict[str, object]], **service: object) -> RoutesFile:
    return msgspec.structs.replace(routes(entries, (), **service), open=True)  # type: ignore[arg-type]


def revised(
    numbers: str = "", **service: object
) -> Callable[[list[MockReplica]], RoutesFile]:
    """Return what makes open routes: replicas have these revisions."""

    def make(replicas: list[MockReplica]) -> RoutesFile:
        entries = [replica.entry for replica in replicas]
        for entry, number in zip(entries, numbers, strict=False):
            entry["revision"] = int(number)
        return open_routes(entries, **service)

    return make


def replicas_of(count: int) -> list[MockReplica]:
    return [MockReplica(f"chat-{number}") for number in range(count)]


def test_a_draining_replica_gets_nothing_new_and_ends_what_it_has() -> None:
    async def scenario() -> None:
        replicas = [MockReplica(name, answer_stream(30, 0.01)) for name in "ab"]
        async with gateway(*replicas, routes=revised()) as world:
            entries = [replica.entry for replica in replicas]
            posts = [asyncio.ensure_future(world.post(STREAM)) for _ in range(8)]
            await world.until(lambda: sum(len(one.requests) for one in replicas) == 8)
            begun = len(replicas[0].requests)
            pool = world.core.services["chat"].pools["a"]
            draining = [{**entries[0], "draining": True}, entries[1]]
            world.core.update_routes(open_routes(draining, version=2))
            posts += [asyncio.ensure_future(world.post(STREAM)) for _ in range(8)]
            for answer in await asyncio.gather(*posts):
                assert answer.events[-1] == "[DONE]"
            count = len(replicas[0].requests)
            assert count == begun
            world.core.update_routes(open_routes(entries, version=3))
            assert world.core.services["chat"].pools["a"] is pool
            replicas[1].kill()
            assert (await world.post(STREAM)).events[-1] == "[DONE]"

    play(scenario())


def test_a_revision_in_the_name_leads_to_its_replicas() -> None:
    async def scenario() -> None:
        replicas = replicas_of(2)
        async with gateway(*replicas, routes=revised("34")) as world:
            for _ in range(5):
                answer = await world.post({"model": "chat@3", "messages": ["x"]})
                assert answer.status == 200
            count = len(replicas[0].requests)
            assert count == 5
            assert replicas[0].requests[0].json == {"model": "chat", "messages": ["x"]}
            for model in ("chat@5", "chat@", "chat@03", "chat@x", "@3", "other@3"):
                answer = await world.post({"model": model})
                assert (answer.status, answer.code) == (404, "model_not_found")

    play(scenario())


def test_requests_for_a_revision_that_is_away_do_not_stop_the_others() -> None:
    async def scenario() -> None:
        replicas = replicas_of(2)
        state = revised("34", deadline_seconds=0.5)
        async with gateway(*replicas, routes=state) as world:
            replicas[0].kill()
            pinned = [
                asyncio.ensure_future(world.post({"model": "chat@3"})) for _ in range(3)
            ]
            await world.until(lambda: world.core.services["chat"].waiting == 3)
            for _ in range(10):
                assert (await world.post()).status == 200
            for answer in await asyncio.gather(*pinned):
                assert answer.status == 503

    play(scenario())


def test_a_canary_gets_its_share_and_no_more() -> None:
    async def scenario() -> None:
        replicas = replicas_of(3)
        canary = {"revision": 3, "share": 0.1}
        async with gateway(*replicas, routes=revised("344", canary=canary)) as world:
            client = await world.connect()
            for _ in range(200):
                assert (await client.post()).status == 200
            count = len(replicas[0].requests)
            assert count == 20
            text = (await client.get("/metrics")).body.decode()
            name = "corral_gateway_requests_total"
            assert f'{name}{{service="chat",revision="3",code="200"}} 20' in text
            assert f'{name}{{service="chat",revision="4",code="200"}} 180' in text
            replicas[0].kill()
            for _ in range(50):
                assert (await client.post()).status == 200
            await client.close()

    play(scenario())


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_ends_of_a_share(share: float) -> None:
    async def scenario() -> None:
        replicas = replicas_of(2)
        canary = {"revision": 4, "share": share}
        async with gateway(*replicas, routes=revised("34", canary=canary)) as world:
            for _ in range(10):
                assert (await world.post()).status == 200
            counts = [len(one.requests) for one in replicas]
            assert counts == ([0, 10] if share else [10, 0])

    play(scenario())


def test_a_canary_alone_takes_everything() -> None:
    async def scenario() -> None:
        replicas = replicas_of(1)
        canary = {"revision": 3, "share": 0.01}
        async with gateway(*replicas, routes=revised("3", canary=canary)) as world:
            for _ in range(10):
                assert (await world.post()).status == 200

    play(scenario())


FORM = (
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n'
    b"Content-Type: audio/wav\r\n\r\nRIFF\r\n--y\r\n\r\n"
    b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n--x--\r\n'
)


async def post_form(world: World, form: bytes, content_type: str) -> Answer:
    client = await world.connect()
    head = (
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(form)}\r\n\r\n"
    )
    client.writer.write(head.encode() + form)
    try:
        return await client.answer()
    finally:
        await client.close()


def test_a_form_is_relayed_by_its_model() -> None:
    async def scenario() -> None:
        replicas = replicas_of(2)
        async with gateway(*replicas, routes=revised("34")) as world:
            kind = 'multipart/form-data; boundary="x"'
            assert (await post_form(world, FORM % b"chat", kind)).status == 200
            requests = [*replicas[0].requests, *replicas[1].requests]
            assert requests[0].body == FORM % b"chat"
            assert requests[0].lines[b"content-type"] == kind.encode()
            answer = await post_form(world, FORM % b"chat@4", kind)
            assert answer.status == 200
            assert replicas[1].requests[-1].body == FORM % b"chat"
            assert (await post_form(world, FORM % b"other", kind)).status == 404

    play(scenario())


@pytest.mark.parametrize(
    ("form", "content_type"),
    [
        (b'{"model": "chat"}', "application/json"),
        (FORM % b"chat", "multipart/form-data"),
        (FORM % b"chat", "multipart/form-data; boundary=other"),
        (FORM % b"", "multipart/form-data; boundary=x"),
        (FORM % b"\xff", "multipart/form-data; boundary=x"),
        (FORM % (b"c" * 2000), "multipart/form-data; boundary=x"),
        ((FORM % b"chat")[:-9], "multipart/form-data; boundary=x"),
        (b"--x--\r\n", "multipart/form-data; boundary=x"),
        ((FORM % b"a")[:-5] + FORM % b"b", "multipart/form-data; boundary=x"),
        (b"--x" + b"\r\n\r\n\r\n--x" * 100, "multipart/form-data; boundary=x"),
        (b"--x\r\n" + b"y" * 10_000, "multipart/form-data; boundary=x"),
    ],
)
def test_a_bad_form_is_refused(form: bytes, content_type: str) -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a")) as world:
            answer = await post_form(world, form, content_type)
            assert (answer.status, answer.code) == (400, "bad_request")

    play(scenario())


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/images/generations"])
def test_more_endpoints_are_plain_relays(path: str) -> None:
    async def scenario() -> None:
        def behave(request: Request, side: ReplicaSide) -> None:
            if path == "/v1/audio/speech":
                side.write(STREAM_HEAD.replace(b"text/event-stream", b"audio/mpeg"))
                side.write(chunk(b"\xff\xfb" * 50_000) + b"0\r\n\r\n")
            else:
                side.write(json_bytes())

        replica = MockReplica("a", behave)
        async with gateway(replica) as world:
            answer = await world.post({"model": "chat", "input": "x"}, path)
            assert answer.status == 200
            assert answer.is_whole
            assert replica.requests[0].head.startswith(f"POST {path} ".encode())
            replica.behave = answer_json

    play(scenario())
