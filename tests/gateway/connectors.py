"""Mock engines that send KV caches between replicas, as vLLM, SGLang or a store do."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from corral.route.learned_rates import LearnedRates
from corral.wire.gateway_routes import ReplicaEntry, RoutesFile
from tests.gateway.worlds import (
    STREAM_END,
    STREAM_HEAD,
    Answer,
    Behave,
    MockReplica,
    ReplicaSide,
    Request,
    World,
    chunk,
    gateway,
    routes_of,
)

PROMPT = "word " * 1000
PROMPT_TOKENS = 1300
CACHED_AT_PREFILL = 40
ANSWER = ["one", " two", " three"]
TEXT = "".join(ANSWER)
STALE = "the blocks of another prompt"


def prompt_of(body: Any) -> str:
    return json.dumps(body.get("messages") or body.get("prompt") or body.get("input"))


def usage_of(cached: int, output: int) -> dict[str, Any]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": output,
        "total_tokens": PROMPT_TOKENS + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def write_json(side: ReplicaSide, value: object, status: str = "200 OK") -> None:
    body = json.dumps(value).encode()
    side.write(
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )


def write_answer(side: ReplicaSide, body: Any, texts: list[str], cached: int) -> None:
    """Answer with these texts, as a stream if the request wants one."""
    usage = usage_of(cached, len(texts))
    if not body.get("stream"):
        choice = {"index": 0, "message": {"content": "".join(texts)}, "text": "x"}
        write_json(side, {"choices": [choice], "usage": usage})
        return
    side.write(STREAM_HEAD)
    for text in texts:
        event = {"choices": [{"index": 0, "delta": {"content": text}}]}
        side.write(chunk(b"data: " + json.dumps(event).encode() + b"\n\n"))
    last = {"choices": [], "usage": usage}
    side.write(chunk(b"data: " + json.dumps(last).encode() + b"\n\n"))
    side.write(STREAM_END)


@dataclass
class VllmBlocks:
    """Blocks that prefill replicas keep until a decode replica has read them: whoever
    reads them again gets those of another prompt.

    Attributes:
        computed: Prompts that decode replicas have computed themselves.
    """

    prompts: dict[str, str] = field(default_factory=dict)
    computed: list[str] = field(default_factory=list)
    reads: int = 0
    blocks: int = 0

    def prefill(self, request: Request, side: ReplicaSide) -> None:
        body = request.json
        params = body["kv_transfer_params"]
        assert params["do_remote_decode"] is True
        assert params["do_remote_prefill"] is False
        assert body["stream"] is False
        assert "stream_options" not in body
        assert "min_tokens" not in body
        is_responses = b"/v1/responses" in request.head
        assert body["max_output_tokens" if is_responses else "max_tokens"] == 1
        self.blocks += 1
        block = f"{side.replica.name}-{self.blocks}"
        self.prompts[block] = prompt_of(body)
        answer = {
            "choices": [{"index": 0, "message": {"content": ANSWER[0]}}],
            "usage": usage_of(CACHED_AT_PREFILL, 1),
            "kv_transfer_params": {
                "do_remote_prefill": True,
                "do_remote_decode": False,
                "remote_engine_id": side.replica.name,
                "remote_block_ids": [[block]],
                "remote_host": "127.0.0.1",
                "remote_port": 5600,
            },
        }
        write_json(side, answer)

    def decode(self, request: Request, side: ReplicaSide) -> None:
        body = request.json
        texts, cached = self.read(body)
        write_answer(side, body, texts, cached)

    def read(self, body: Any) -> tuple[list[str], int]:
        """Return the answer, and the tokens that the engine reports as cached."""
        params = body.get("kv_transfer_params")
        if params is None:
            self.computed.append(prompt_of(body))
            return ANSWER, 0
        assert params["do_remote_prefill"] is True
        [[block]] = params["remote_block_ids"]
        self.reads += 1
        if self.prompts.pop(block, None) != prompt_of(body):
            return [STALE], PROMPT_TOKENS - 1
        return ANSWER, PROMPT_TOKENS - 1


def role(replica: MockReplica, name: str, **more: object) -> dict[str, object]:
    return {**replica.entry, "role": name, **more}


def after(event: asyncio.Event, behave: Behave) -> Behave:
    """Return a behaviour that waits for an event first."""

    def waiting(request: Request, side: ReplicaSide) -> None:
        async def answer() -> None:
            await event.wait()
            behave(request, side)

        side.start(answer())

    return waiting


@dataclass
class SglangRooms:
    """Rooms in which a prefill and a decode replica of SGLang meet."""

    prefilled: set[int] = field(default_factory=set)
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict)
    refused: int = 0

    def room_of(self, request: Request, side: ReplicaSide) -> int | None:
        room: int | None = request.json.get("bootstrap_room")
        if room is None:
            self.refused += 1
            error = {"message": "Disaggregated request received without room id"}
            write_json(side, error, "400 Bad Request")
        return room

    def prefill(self, request: Request, side: ReplicaSide) -> None:
        room = self.room_of(request, side)
        if room is None:
            return
        assert request.json["bootstrap_host"] == "127.0.0.1"
        assert request.json["bootstrap_port"] == 9001
        self.prefilled.add(room)
        if room in self.waiting:
            self.waiting.pop(room)()
        write_answer(side, {}, [ANSWER[0]], CACHED_AT_PREFILL)

    def decode(self, request: Request, side: ReplicaSide) -> None:
        room = self.room_of(request, side)
        if room is None:
            return

        def answer() -> None:
            write_answer(side, request.json, ANSWER, 7)

        if room in self.prefilled:
            answer()
        else:
            self.waiting[room] = answer


LONG = {"model": "chat", "messages": [{"role": "user", "content": PROMPT}]}
STREAM = {**LONG, "stream": True, "stream_options": {"include_usage": True}}


@asynccontextmanager
async def pair(
    *replicas: tuple[MockReplica, str], transfer: str = "vllm", **service: Any
) -> AsyncIterator[World]:
    """Run a gateway before replicas with roles, of which those that decode are slow at
    prompts."""
    mocks = [replica for replica, _ in replicas]
    more = {"bootstrap_port": 9001} if transfer == "sglang" else {}

    def routes(_: list[MockReplica]) -> RoutesFile:
        entries = [role(replica, name, **more) for replica, name in replicas]
        return routes_with(entries, transfer=transfer, **service)

    async with gateway(*mocks, routes=routes) as world:
        slow_at_prompts(world)
        yield world


def routes_with(entries: list[dict[str, object]], **service: Any) -> RoutesFile:
    """Return the routes of one service with these replicas."""
    routes = routes_of([], **service)
    replicas = msgspec.convert(entries, tuple[ReplicaEntry, ...])
    [chat] = routes.services
    chat = msgspec.structs.replace(chat, replicas=replicas)
    return msgspec.structs.replace(routes, services=(chat,))


def slow_at_prompts(world: World) -> None:
    for pool in world.core.services["chat"].pools.values():
        rate = 100_000.0 if pool.is_prefill else 200.0
        pool.state.rates = LearnedRates(rate)


def texts_of(answer: Answer) -> str:
    """Return the text of an answer, which may be a stream."""
    if answer.body.startswith(b"{"):
        return str(answer.json["choices"][0]["message"]["content"])
    events = [json.loads(event) for event in answer.events[:-1]]
    assert answer.events[-1] == "[DONE]"
    choices = [choice for event in events for choice in event["choices"]]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def usage_in(answer: Answer) -> Any:
    if answer.body.startswith(b"{"):
        return answer.json["usage"]
    return json.loads(answer.events[-2])["usage"]


def in_flight(world: World) -> int:
    pools = world.core.services["chat"].pools.values()
    return sum(pool.state.in_flight for pool in pools)
