"""Engines of replicas that show their model and complete a token before the replica is
ready, by a server that answers as engines do."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from corral.agent import model_check, readiness_probe
from corral.agent.model_check import check_model
from corral.agent.probe_result import ProbeKind, ProbeTarget
from corral.agent.readiness_probe import ReadinessProbes
from corral.domain.desired_state import Launch, ReplicaLaunch
from corral.domain.ids import ServiceName
from corral.domain.job import ModelCheck
from corral.domain.observed_state import Phase, Seen
from tests.agent.bench import key_of, launch_of
from tests.patience import PATIENCE_SECONDS

ONE = key_of(1)
KEY: Final = "0123456789abcdef0123456789abcdef01234567"
CHECK: Final = ModelCheck(names=("chat", "org/name"))
UNLISTED: Final = replace(CHECK, is_listed=False)
CHAT: Final = "/v1/chat/completions"
TEXT: Final = "/v1/completions"
COMPLETION: Final = {"choices": [{"index": 0}], "usage": {"completion_tokens": 1}}
NOT_HERE: Final = (404, {"error": {"message": "no such page"}})


@dataclass
class OpenAiEngine:
    """An engine with the paths of OpenAI's API.

    `answers` are those of its paths; a status of 0 is never sent.
    """

    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    models: tuple[str, ...] = ("chat",)
    requests: list[tuple[str, Any]] = field(default_factory=list)
    probes: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    port: int = 0

    async def answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.writers.append(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ", 2)[1]
        body = b""
        if "Content-Length: " in head:
            length = int(head.partition("Content-Length: ")[2].split("\r\n")[0])
            body = await reader.readexactly(length)
        if path == "/health":
            self.probes += 1
        else:
            self.requests.append((path, json.loads(body) if body else None))
        listed = {"data": [{"id": name} for name in self.models]}
        usual = {"/health": (200, {}), "/v1/models": (200, listed)}
        completions = {CHAT: (200, COMPLETION), TEXT: (200, COMPLETION)}
        status, value = (usual | completions | self.answers)[path]
        if f"Authorization: Bearer {KEY}\r\n" not in head:
            status = 401
        if status:
            text = json.dumps(value).encode()
            writer.write(
                b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s"
                % (status, len(text), text)
            )
            writer.close()

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    @property
    def target(self) -> ProbeTarget:
        return ProbeTarget(host="127.0.0.1", port=self.port, path="/health", key=KEY)

    def launch(self, check: ModelCheck | None = CHECK) -> Launch:
        replica = ReplicaLaunch(
            service=ServiceName("chat"),
            revision=4,
            number=7,
            probe="/health",
            key=KEY,
            model_check=check,
        )
        return launch_of(ONE, master_port=self.port, replica=replica)


@asynccontextmanager
async def running(**more: Any) -> AsyncIterator[OpenAiEngine]:
    engine = OpenAiEngine(**more)
    server = await asyncio.start_server(engine.answer, "127.0.0.1", 0)
    engine.port = server.sockets[0].getsockname()[1]
    try:
        yield engine
    finally:
        server.close()
        for writer in engine.writers:
            writer.close()
        await asyncio.sleep(0)  # closes the sockets


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness_probe, "PROBE_SECONDS", 0.01)
    monkeypatch.setattr(readiness_probe, "READY_PROBE_SECONDS", 0.01)


@asynccontextmanager
async def probed(
    first: Phase = Phase.STARTING, check: ModelCheck | None = CHECK, **engine: Any
) -> AsyncIterator[tuple[OpenAiEngine, ReadinessProbes]]:
    """An engine, and the probes of an agent that sees it first in this phase."""
    async with running(**engine) as here:
        launches = {ONE: here.launch(check)}
        probes = ReadinessProbes(on_change=lambda: None)
        probes.follow(launches, [Seen(key=ONE, phase=first)])
        probes.follow(launches, [Seen(key=ONE, phase=Phase.UP)])
        try:
            yield here, probes
        finally:
            await probes.close()


def seen_by(probes: ReadinessProbes) -> Seen:
    (seen,) = probes.reported([Seen(key=ONE, phase=Phase.UP)])
    return seen


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("fast")
def test_a_replica_is_ready_after_its_model_is_listed_and_one_token_completed() -> None:
    async def story() -> None:
        answers = {CHAT: (503, {"error": {"message": "warming up"}})}
        models = ("other", "org/name")
        async with probed(answers=answers, models=models) as (engine, probes):
            await until(lambda: "warming up" in seen_by(probes).probe_text)
            assert seen_by(probes).is_ready is False
            engine.answers.clear()
            await until(lambda: seen_by(probes).is_ready)
            asked = engine.requests[-1]
            assert asked[1]["model"] == "org/name", "the name that it serves"
            assert asked[1]["max_tokens"] == 1
            count = len(engine.requests)
            looked = engine.probes
            await until(lambda: engine.probes > looked + 2)
            assert len(engine.requests) == count, "one token for each start"

    asyncio.run(story())


@pytest.mark.usefixtures("fast")
def test_a_replica_with_another_model_is_never_ready_and_the_reason_names_it() -> None:
    async def story() -> None:
        async with probed(models=("m1", "m2", "m3", "m4")) as (engine, probes):
            await until(lambda: len(engine.requests) > 5)
            seen = seen_by(probes)
            assert seen.is_ready is False
            assert seen.probe_text == (
                "GET /v1/models: the engine does not serve chat or org/name, but "
                "m1, m2, m3 and 1 more"
            )
            assert set(engine.paths) == {"/v1/models"}, "no token is spent"

    asyncio.run(story())


@pytest.mark.usefixtures("fast")
def test_the_text_says_that_the_first_completion_is_awaited() -> None:
    async def story() -> None:
        async with probed(answers={CHAT: (0, {})}) as (engine, probes):
            await until(lambda: CHAT in engine.paths)
            seen = seen_by(probes)
            assert (seen.is_ready, seen.probe_text) == (
                False,
                readiness_probe.CHECK_TEXT,
            )

    asyncio.run(story())


@pytest.mark.usefixtures("fast")
def test_an_engine_of_an_earlier_agent_gets_no_completion_but_its_model_counts() -> (
    None
):
    async def story() -> None:
        async with probed(Phase.UP) as (engine, probes):
            await until(lambda: seen_by(probes).is_ready)
            assert engine.paths == ["/v1/models"]
        async with probed(Phase.UP, models=()) as (engine, probes):
            await until(lambda: seen_by(probes).is_ready is False)
            assert "but no model" in seen_by(probes).probe_text

    asyncio.run(story())


@pytest.mark.usefixtures("fast")
def test_a_plain_http_service_is_ready_by_its_probe_alone() -> None:
    async def story() -> None:
        async with probed(check=None) as (engine, probes):
            await until(lambda: seen_by(probes).is_ready)
            assert engine.requests == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("answers", "check", "text"),
    [
        ({}, CHECK, ""),
        ({}, UNLISTED, ""),
        ({CHAT: (400, {"message": "no chat template"})}, CHECK, ""),
        # an engine of embeddings lists its model
        ({CHAT: NOT_HERE, TEXT: NOT_HERE}, CHECK, ""),
        ({CHAT: NOT_HERE, TEXT: NOT_HERE}, UNLISTED, f"POST {CHAT}: 404"),
        ({CHAT: (500, {"e": KEY})}, CHECK, f'POST {CHAT}: 500: {{"e": "***"}}'),
        ({CHAT: NOT_HERE, TEXT: (503, {})}, CHECK, f"POST {TEXT}: 503"),
        ({CHAT: (200, {"error": {"message": "out of memory"}})}, CHECK, "200: "),
        ({CHAT: (200, {"choices": []})}, CHECK, f"POST {CHAT}: 200"),
        ({"/v1/models": (200, [])}, CHECK, "GET /v1/models: 200: []"),
        ({"/v1/models": (200, {"data": [{}, 7, {"id": 7}]})}, CHECK, "but no model"),
        ({"/v1/models": NOT_HERE}, CHECK, "GET /v1/models: 404"),
        ({"/v1/models": NOT_HERE}, UNLISTED, ""),
    ],
)
def test_only_a_completion_or_an_engine_without_them_passes(
    answers: dict[str, tuple[int, Any]], check: ModelCheck, text: str
) -> None:
    async def story() -> None:
        async with running(answers=answers) as engine:
            result = await check_model(engine.target, check, with_completion=True)
        expected = ProbeKind.NOT_READY if text else ProbeKind.READY
        assert result.kind == expected, result.text
        assert text in result.text
        assert KEY not in result.text

    asyncio.run(story())


def test_an_engine_that_hangs_or_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_check, "COMPLETION_SECONDS", 0.1)

    async def story() -> None:
        async with running(answers={CHAT: (0, {})}) as engine:
            late = await check_model(engine.target, CHECK, with_completion=True)
            stranger = replace(engine.target, key="another")
            refused = await check_model(stranger, CHECK, with_completion=True)
        gone = await check_model(engine.target, CHECK, with_completion=True)
        assert late.kind == ProbeKind.NOT_ANSWERED
        assert late.text == f"no answer to POST {CHAT} on port {engine.port}"
        assert "GET /v1/models: 401" in refused.text
        assert gone.kind == ProbeKind.NOT_READY

    asyncio.run(story())
