"""One replica in a process of its own: an engine behind a relay of bytes that can fail as
engines do. The engine is a deterministic mock, or llama.cpp by the wheel xllamacpp.

    python -m tests.scenarios.services.replica_process --engine mock --port 8001

Faults: --poison WORD ends the process when a request has the word; --errors SHARE answers
this share of the requests with 500; --delay SECONDS holds each request for so long; with
--ready-file PATH requests are answered by 503 until the file exists.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.gateway.engines import Engine
from tests.gateway.worlds import STREAM_HEAD, MockReplica, ReplicaSide, Request, chunk

KEY = "engine-key"
LOADING = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
    b'content-length: 40\r\n\r\n{"error": {"message": "Loading model"}} '
)
FAILED = (
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\n"
    b'content-length: 27\r\n\r\n{"error": {"message": "x"}}'
)


class MockEngine:
    """Mock that generates a token each `token_seconds`, for at most `slots` at once."""

    def __init__(self, token_seconds: float, slots: int, padding: int) -> None:
        self._padding = b'{"padding": "%b", ' % (b"x" * padding)
        self._token_seconds = token_seconds
        self._slots = asyncio.Semaphore(slots)
        self._engine = Engine(is_exact=True)

    def behave(self, request: Request, side: ReplicaSide) -> None:
        side.start(self._answer(request, side))

    async def _answer(self, request: Request, side: ReplicaSide) -> None:
        path = request.head.split(b" ")[1]
        body = request.json
        async with self._slots:
            if body.get("stream"):
                await self._stream(path, body, side)
            else:
                await self._whole(path, body, side)

    async def _stream(self, path: bytes, body: Any, side: ReplicaSide) -> None:
        side.write(STREAM_HEAD)
        for event in self._engine.stream(path, body).split(b"\n\n")[:-1]:
            await side.is_writable.wait()
            side.write(chunk(event.replace(b"{", self._padding, 1) + b"\n\n"))
            await asyncio.sleep(self._token_seconds)
        side.write(b"0\r\n\r\n")

    async def _whole(self, path: bytes, body: Any, side: ReplicaSide) -> None:
        limit = body.get("max_tokens") or 16
        await asyncio.sleep(limit * self._token_seconds)
        prompt = self._engine.prompt(path, body)
        text = "".join(step.text for step in self._engine.steps(prompt, limit))
        usage = {"prompt_tokens": len(prompt), "completion_tokens": limit}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}}
        data = json.dumps({"choices": [choice], "usage": usage}).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        side.write(head + b"content-length: %d\r\n\r\n%b" % (len(data), data))


def start_llama(model: Path, port: int, parallel: int) -> Any:
    """Start llama.cpp's server in this process; return what must live on."""
    xllamacpp: Any = import_module("xllamacpp")

    from corral.serve.llama_cpp import parsed_options, server_parameters

    options = parsed_options(
        ["--model", str(model), "--host", "127.0.0.1", "--port", str(port)]
        + ["--alias", "chat", "--api-key", KEY, "--parallel", str(parallel)]
    )
    parameters = xllamacpp.CommonParams()
    parameters.cpuparams.n_threads = 1  # several replicas share the machine
    parameters.cpuparams_batch.n_threads = 1
    return xllamacpp.Server(server_parameters(parameters, options))


class Relay(asyncio.Protocol):
    """Connection of a client, whose bytes go to the engine unless a fault is due."""

    def __init__(self, engine_port: int, faults: argparse.Namespace) -> None:
        self._engine_port = engine_port
        self._faults = faults
        self._transport: Any = None
        self._engine: Any = None
        self._early = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        faults = self._faults
        if faults.poison and faults.poison.encode() in data:
            os.kill(os.getpid(), signal.SIGKILL)
        is_request = data.startswith((b"POST", b"GET"))
        if is_request and faults.ready_file and not faults.ready_file.exists():
            self._transport.write(LOADING)
            return
        if is_request and random.random() < faults.errors:
            self._transport.write(FAILED)
            return
        self._early += data
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._pass())

    async def _pass(self) -> None:
        if self._faults.delay:
            await asyncio.sleep(self._faults.delay)
        if self._engine is None:
            loop = asyncio.get_running_loop()
            try:
                self._engine, _ = await loop.create_connection(
                    lambda: EngineSide(self._transport), "127.0.0.1", self._engine_port
                )
            except OSError:
                self._transport.close()
                return
        data, self._early = self._early, b""
        self._engine.write(data)

    def pause_writing(self) -> None:
        if self._engine is not None:
            self._engine.pause_reading()

    def resume_writing(self) -> None:
        if self._engine is not None:
            self._engine.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self._engine is not None:
            self._engine.close()


class EngineSide(asyncio.Protocol):
    """Connection to the engine."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.close()


async def serve(faults: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    engine_port = faults.engine_port
    if faults.engine == "mock":
        engine = MockEngine(faults.token_seconds, faults.slots, faults.padding)
        mock = MockReplica("mock", engine.behave)
        await mock.start()
        engine_port = mock.port
    await asyncio.sleep(faults.start_seconds)
    server = await loop.create_server(
        lambda: Relay(engine_port, faults), "127.0.0.1", faults.port
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["mock", "llama"], default="mock")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--engine-port", type=int, default=0)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--token-seconds", type=float, default=0.005)
    parser.add_argument("--padding", type=int, default=0, help="bytes of each event")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--start-seconds", type=float, default=0.0)
    parser.add_argument("--poison", default="")
    parser.add_argument("--errors", type=float, default=0.0)
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument("--delay", type=float, default=0.0)
    faults = parser.parse_args()
    engine: Any = None
    if faults.engine == "llama":
        engine = start_llama(faults.model, faults.engine_port, faults.slots)
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(faults))
    del engine
    sys.exit(0)


if __name__ == "__main__":
    main()
