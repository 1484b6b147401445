"""The package `openai`, unchanged, as a client of the gateway."""

import asyncio
import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from corral.wire.gateway_routes import CallerEntry, RoutesFile
from tests.gateway.worlds import (
    STREAM_END,
    STREAM_HEAD,
    MockReplica,
    ReplicaSide,
    Request,
    chunk,
    event,
    gateway,
    json_bytes,
    play,
    routes_of,
)

KEY = "sk-caller"
SCRIPT = Path(__file__).parent / "openai_calls.py"
EXPECTED: dict[str, Any] = {
    "chat": ["hello", 10, True],
    "chat_stream": ["w0 w1 ", 2],
    "completion": "there",
    "embeddings": [[0.5, 1.0], [0.5, 1.0]],
    "response": "hello",
    "response_stream": ["response.created", "response.completed"],
    "stored_response": ["hello", ["NotFoundError", 404, "response_not_found"]],
    "models": [["chat", "org/name"], "org/name"],
    "transcription": "spoken",
    "wrong_key": ["AuthenticationError", 401, "invalid_api_key"],
    "unknown_model": ["NotFoundError", 404, "model_not_found"],
    "bad_request": ["BadRequestError", 400, "bad_request"],
    "engine_error": ["InternalServerError", 500, None],
    "error_in_stream": [3, "replica_lost"],
    "limit_without_retries": ["rate_limit_exceeded", True],
    "limit_with_retries": ["hello", 10, True],
}
USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "chat",
    "status": "completed",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hello", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def answer(side: ReplicaSide, value: object, status: str = "200 OK") -> None:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
    side.write(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body))


def stream(side: ReplicaSide, *values: object, cut: bool = False) -> None:
    side.write(STREAM_HEAD)
    for value in values:
        data = value if isinstance(value, bytes) else b""
        side.write(chunk(data or b"data: " + json.dumps(value).encode() + b"\n\n"))
    if cut:
        side.close()
    else:
        side.write(STREAM_END)


def behave(request: Request, side: ReplicaSide) -> None:
    """Answer as an engine with all of OpenAI's endpoints does."""
    path = request.head.split(b" ")[1]
    if path == b"/v1/audio/transcriptions":
        assert b"RIFF0000WAVE" in request.body
        answer(side, {"text": "spoken"})
    elif path == b"/v1/completions":
        choice = {
            "index": 0,
            "text": "there",
            "finish_reason": "stop",
            "logprobs": None,
        }
        answer(side, {"id": "1", "object": "text_completion", "choices": [choice]})
    elif path == b"/v1/embeddings":
        rows = [
            {"object": "embedding", "index": number, "embedding": [0.5, 1.0]}
            for number, _ in enumerate(request.json["input"])
        ]
        answer(side, {"object": "list", "data": rows, "model": "chat"})
    elif path == b"/v1/responses/resp_1":
        answer(side, RESPONSE)  # also of DELETE, whose body the client does not read
    elif path == b"/v1/responses":
        if not request.json.get("stream"):
            answer(side, RESPONSE)
            return
        kinds = ("response.created", "response.completed")
        side.write(STREAM_HEAD)
        for number, kind in enumerate(kinds):
            data = {"type": kind, "sequence_number": number, "response": RESPONSE}
            text = f"event: {kind}\ndata: {json.dumps(data)}\n\n"
            side.write(chunk(text.encode()))
        side.write(b"0\r\n\r\n")
    else:
        behave_in_chat(request, side)


def behave_in_chat(request: Request, side: ReplicaSide) -> None:
    body = request.json
    word = body["messages"][-1]["content"]
    if word == "fail":
        answer(side, {"error": {"message": "out of luck"}}, "500 Internal Server Error")
    elif body.get("stream"):
        usage = {"choices": [], "usage": USAGE}
        stream(side, event("w0 "), event("w1 "), usage, cut=word == "cut")
    elif word == "slow":

        async def later() -> None:
            await asyncio.sleep(1.0)
            side.write(json_bytes())

        side.start(later())
    else:
        side.write(json_bytes())


def routes(replicas: list[MockReplica]) -> RoutesFile:
    caller = CallerEntry(
        name="alice", key_sha256=sha256(KEY.encode()).hexdigest(), concurrency=1
    )
    return msgspec.structs.replace(routes_of(replicas), open=False, callers=(caller,))


async def outcomes_of(python: str) -> dict[str, Any]:
    """Return the outcomes of all calls with the `openai` of this interpreter."""
    async with gateway(MockReplica("a", behave), routes=routes) as world:
        process = await asyncio.create_subprocess_exec(
            python, str(SCRIPT), f"http://127.0.0.1:{world.port}/v1", KEY,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        output, _ = await process.communicate()
    outcomes = json.loads(output)
    assert isinstance(outcomes, dict)
    return outcomes


def test_the_installed_version_gets_what_it_expects() -> None:
    pytest.importorskip("openai")

    async def scenario() -> None:
        assert (await outcomes_of(sys.executable))["outcomes"] == EXPECTED

    play(scenario())
