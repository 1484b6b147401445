"""Fallback: when requests go to another provider, what it gets, and what never does."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from corral.gateway.counting.counters import render_counters
from corral.gateway.counting.metrics_text import metrics_text
from corral.wire.gateway_counters import decode_counters
from corral.wire.gateway_routes import RoutesFile
from tests.gateway.worlds import (
    MockReplica,
    ReplicaSide,
    Request,
    World,
    answer_nothing,
    answer_raw,
    answer_stream,
    gateway,
    json_bytes,
    play,
    routes_of,
)
from tests.kube.tls import certificate

KEY = "provider-key"


@asynccontextmanager
async def with_fallback(
    *replicas: MockReplica, provider: MockReplica, **service: Any
) -> AsyncIterator[World]:
    await provider.start()

    def routes(made: list[MockReplica]) -> Any:
        fallback = {
            "url": f"http://127.0.0.1:{provider.port}/api/v1",
            "model": "large",
            "key": KEY,
            "private_ok": True,
            **service.pop("fallback", {}),
        }
        return routes_of(made, fallback=fallback, **service)

    try:
        async with gateway(*replicas, routes=routes) as world:
            yield world
    finally:
        provider.kill()


def test_without_a_ready_replica_the_fallback_answers_and_is_counted_apart() -> None:
    async def scenario() -> None:
        provider = MockReplica("provider")
        async with with_fallback(provider=provider) as world:
            answer = await world.post({"model": "org/name", "messages": ["x"]})
            assert (answer.status, answer.headers["x-corral-fallback"]) == (200, "true")
            (request,) = provider.requests
            assert request.head.startswith(b"POST /api/v1/chat/completions HTTP/1.1")
            assert request.json == {"model": "large", "messages": ["x"]}
            assert request.lines[b"authorization"] == f"Bearer {KEY}".encode()
            assert b"traceparent" not in request.lines
            assert world.total.requests == {}
            assert world.metrics.fallback.requests == {200: 1}
            assert world.metrics.fallback.token_sums.output == 3
            assert world.total.token_sums.output == 0
            text = metrics_text({"chat": world.metrics})
            assert (
                'corral_gateway_fallback_requests_total{service="chat",code="200"} 1'
                in text
            )
            assert 'corral_gateway_fallback_tokens_total{service="chat"} 13' in text
            report = decode_counters(render_counters([world.core.metrics.own]))
            (tokens,) = report.processes[0].services["chat"].fallback.values()
            assert (tokens.prompt, tokens.output, tokens.requests) == (10, 3, 1)

    play(scenario())


def test_with_a_ready_replica_the_fallback_gets_nothing() -> None:
    async def scenario() -> None:
        provider, replica = MockReplica("provider"), MockReplica("a")
        async with with_fallback(replica, provider=provider) as world:
            for _ in range(5):
                answer = await world.post()
                assert answer.status == 200
                assert "x-corral-fallback" not in answer.headers
            assert provider.connections == 0

    play(scenario())


def test_what_would_be_refused_for_load_goes_to_the_fallback() -> None:
    async def scenario() -> None:
        provider, replica = MockReplica("provider"), MockReplica("a", answer_nothing)
        async with with_fallback(replica, provider=provider, queue_requests=0) as world:
            state = world.core.services["chat"].states[0]
            state.limit = 1
            first = asyncio.ensure_future(world.post())
            await world.until(lambda: state.in_flight == 1)
            answer = await world.post()
            assert (answer.status, answer.headers["x-corral-fallback"]) == (200, "true")
            first.cancel()
            await world.until(lambda: not world.core.active)

    play(scenario())


def test_a_request_that_waited_too_long_goes_to_the_fallback() -> None:
    async def scenario() -> None:
        provider, replica = MockReplica("provider"), MockReplica("a", answer_nothing)
        service = {"deadline_seconds": 0.3}
        async with with_fallback(replica, provider=provider, **service) as world:
            state = world.core.services["chat"].states[0]
            state.limit = 0
            answer = await world.post()
            assert (answer.status, answer.headers["x-corral-fallback"]) == (200, "true")

    play(scenario())


def test_a_stream_of_the_fallback_passes_as_it_comes() -> None:
    async def scenario() -> None:
        provider = MockReplica("provider", answer_stream(5))
        service = {"continues": "vllm"}
        async with with_fallback(provider=provider, **service) as world:
            body = {"model": "chat", "stream": True, "messages": ["x"]}
            answer = await world.post(body)
            assert answer.headers["x-corral-fallback"] == "true"
            assert answer.events[-1] == "[DONE]"
            assert provider.requests[0].json == {**body, "model": "large"}

    play(scenario())


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Unavailable"])
def test_a_busy_fallback_is_a_busy_service(status: str) -> None:
    async def scenario() -> None:
        provider = MockReplica("provider", answer_raw(json_bytes(status=status)))
        async with with_fallback(provider=provider) as world:
            answer = await world.post()
            assert (answer.status, answer.code) == (503, "overloaded")
            assert len(provider.requests) == 1

    play(scenario())


def test_a_fallback_that_is_away_is_left_alone_for_a_while() -> None:
    async def scenario() -> None:
        provider = MockReplica("provider")
        service = {"deadline_seconds": 0.2}
        async with with_fallback(provider=provider, **service) as world:
            provider.kill()
            for _ in range(2):
                answer = await world.post()
                assert (answer.status, answer.code) == (503, "overloaded")
            fallback = world.core.services["chat"].fallback
            assert fallback is not None
            assert fallback.state.ejected_until > world.core.now()

    play(scenario())


@pytest.mark.parametrize(
    "fallback",
    [{"private_ok": False}, {"private_ok": False, "url": "https://localhost:1/v1"}],
)
def test_a_private_address_is_never_connected(fallback: dict[str, Any]) -> None:
    async def scenario() -> None:
        provider = MockReplica("provider")
        service = {"fallback": fallback, "deadline_seconds": 0.2}
        async with with_fallback(provider=provider, **service) as world:
            answer = await world.post()
            assert (answer.status, answer.code) == (503, "overloaded")
            assert provider.connections == 0

    play(scenario())


def test_revisions_adapters_and_batches_never_go_to_the_fallback() -> None:
    async def scenario() -> None:
        provider = MockReplica("provider")
        entry = {**MockReplica("a").entry, "port": 1, "revision": 3}
        service = {
            "deadline_seconds": 0.2,
            "replicas": [entry],
            "adapters": [{"name": "legal", "path": "/x"}],
            "adapter_calls": "vllm",
            "max_adapters": 1,
        }
        await provider.start()
        url = f"http://127.0.0.1:{provider.port}/v1"
        fallback = {"url": url, "model": "m", "key": KEY, "private_ok": True}
        state = {
            "version": 1,
            "open": True,
            "services": [
                {"name": "chat", "models": ["chat"], "fallback": fallback, **service}
            ],
        }
        async with gateway(routes=msgspec.convert(state, RoutesFile)) as world:
            for model in ("chat@3", "legal"):
                assert (await world.post({"model": model})).status == 503
            world.core.callers.anyone.priority = "batch"
            assert (await world.post({"model": "chat"})).status == 503
            assert provider.connections == 0
            world.core.callers.anyone.priority = "normal"
            assert (await world.post({"model": "chat"})).status == 200
        provider.kill()

    play(scenario())


@pytest.mark.parametrize("is_trusted", [True, False])
def test_the_certificate_of_the_fallback_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    chain = certificate(tmp_path)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    async def scenario() -> None:
        provider = MockReplica("provider")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(chain, tmp_path / "key.pem")
        server = await asyncio.get_running_loop().create_server(
            lambda: ReplicaSide(provider), "127.0.0.1", 0, ssl=context
        )
        provider.server = server
        port = server.sockets[0].getsockname()[1]
        fallback = {
            "url": f"https://127.0.0.1:{port}/v1",
            "model": "large",
            "key": KEY,
            "private_ok": True,
        }
        async with gateway(fallback=fallback, deadline_seconds=0.3) as world:
            for _ in range(3):
                answer = await world.post()
                assert answer.status == (200 if is_trusted else 503)
            assert len(provider.requests) == (3 if is_trusted else 0)
            assert provider.connections <= 1
        provider.kill()

    play(scenario())


def test_a_refused_key_of_the_fallback_is_not_passed_on() -> None:
    async def scenario() -> None:
        def refuse(request: Request, side: ReplicaSide) -> None:
            side.write(json_bytes("bad key sk-1", status="401 Unauthorized"))

        provider = MockReplica("provider", refuse)
        async with with_fallback(provider=provider) as world:
            answer = await world.post()
            assert (answer.status, answer.code) == (502, "bad_answer")
            assert b"sk-1" not in answer.body

    play(scenario())
