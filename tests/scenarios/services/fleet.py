"""A gateway process before replicas in processes of their own, and clients of it."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.gateway.worlds import Answer, Client, request_bytes
from tests.patience import PATIENCE_SECONDS
from tests.scenarios.services.replica_process import KEY

COUNTERS_KEY = "c" * 40
PROGRAM = "from corral.cli.main import main; main()"
MODULE = "tests.scenarios.services.replica_process"
CHAT = "/v1/chat/completions"
ENGINES = ["mock", "llama"]
MAKE_MODEL = Path("examples/serve_llama_cpp/make_gguf.py")
CONTINUES = {"mock": "text", "llama": "llama.cpp"}


def model_of(engine: str, folder: Path) -> Path | None:
    """Return the model file of the engine; the test is skipped without its wheels."""
    if engine == "mock":
        return None
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    path = folder / "model.gguf"
    if not path.exists():
        command = [sys.executable, str(MAKE_MODEL), "--out", str(path)]
        subprocess.run(command, check=True, capture_output=True)
    return path


def play(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario with a limit on its time."""

    async def limited() -> None:
        async with asyncio.timeout(2 * PATIENCE_SECONDS):
            await scenario

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(limited())


@dataclass(eq=False)
class Replica:
    """A replica's process."""

    name: str
    words: list[str]
    port: int = 0
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process, again at its port if it had one."""
        words = [*self.words, "--port", str(self.port)]
        if "llama" in words:
            words += ["--engine-port", str(free_port())]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE, *words,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                line = await self.process.stdout.readline()
                assert line, f"{self.name} has ended"
                if line.strip().isdigit():
                    break
        self.port = int(line)

    def send(self, number: int) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def kill(self) -> None:
        """End it as kill -9 does."""
        self.send(signal.SIGKILL)
        assert self.process is not None
        assert self.process.stdout is not None
        await self.process.stdout.read()  # closes the pipe
        await self.process.wait()

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def entry(self) -> dict[str, object]:
        return {
            "name": self.name,
            "host": "127.0.0.1",
            "port": self.port,
            "key": KEY,
        }


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(eq=False)
class Fleet:
    """Replicas of the service `chat`, and their gateway."""

    folder: Path
    engine: str
    replicas: list[Replica]
    service: dict[str, Any]
    words: Sequence[str] = ()
    port: int = 0
    version: int = 0
    gateway: asyncio.subprocess.Process | None = None
    log: list[str] = field(default_factory=list)
    _reading: asyncio.Future[None] | None = None

    def write_routes(self, replicas: Sequence[Replica] | None = None) -> None:
        """Write the routes with these replicas; None: with all."""
        self.version += 1
        listed = self.replicas if replicas is None else replicas
        service = {
            "name": "chat",
            "models": ["chat"],
            "replicas": [replica.entry for replica in listed],
            "continues": CONTINUES[self.engine],
            **self.service,
        }
        state = {"version": self.version, "open": True, "services": [service]}
        path = self.folder / "routes.json"
        path.with_suffix(".new").write_text(json.dumps(state))
        path.with_suffix(".new").replace(path)

    async def start_gateway(self) -> None:
        path = self.folder / "routes.json"
        if not path.exists():
            self.write_routes()
        key = self.folder / "counters-key"
        key.write_text(COUNTERS_KEY)
        self.gateway = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, "gateway", "--routes", str(path),
            "--port", str(self.port), "--counters-key-file", str(key), *self.words,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._reading = asyncio.ensure_future(self._read_log())
        await self.until(lambda: any("listening on" in line for line in self.log))

    async def _read_log(self) -> None:
        assert self.gateway is not None
        assert self.gateway.stderr is not None
        while line := (await self.gateway.stderr.readline()).decode():
            self.log.append(line)
            if "listening on" in line:
                self.port = int(line.rpartition(" ")[2])

    async def stop(self) -> None:
        if self.gateway is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.gateway.pid, signal.SIGKILL)
            await self.gateway.wait()
        if self._reading is not None:
            await self._reading
        for replica in self.replicas:
            if replica.process is not None:
                replica.send(signal.SIGCONT)
                await replica.kill()

    async def until(
        self, condition: Callable[[], object], seconds: float = PATIENCE_SECONDS
    ) -> float:
        """Wait for a condition; return the seconds that it took."""
        begin = time.monotonic()
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
        return time.monotonic() - begin

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        return Client(reader, writer, PATIENCE_SECONDS)

    async def post(self, body: object, path: str = CHAT) -> Answer:
        client = await self.connect()
        try:
            return await client.post(body, path)
        finally:
            client.writer.close()

    async def metrics(self) -> dict[str, float]:
        """Return the gateway's metrics of the service, by name without the prefix."""
        client = await self.connect()
        try:
            text = (await client.get("/metrics")).body.decode()
        finally:
            client.writer.close()
        values: dict[str, float] = {}
        for line in text.splitlines():
            name, _, rest = line.partition("{")
            if 'service="chat"' in rest:
                name = name.removeprefix("corral_gateway_")
                values[name] = values.get(name, 0.0) + float(rest.split()[-1])
        return values

    async def busiest(self) -> Replica:
        """Return the replica with the most requests under way."""
        client = await self.connect()
        try:
            key = f"Authorization: Bearer {COUNTERS_KEY}\r\n"
            counters = (await client.get("/internal/counters", key)).json
        finally:
            client.writer.close()
        in_flight = {
            row["name"]: row["in_flight"]
            for process in counters["processes"]
            for row in process["services"]["chat"]["replicas"]
        }
        return max(self.replicas, key=lambda replica: in_flight.get(replica.name, 0))

    async def until_available(self, count: int) -> float:
        """Wait until this number of replicas takes requests; return the seconds."""
        begin = time.monotonic()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self.metrics())["replicas_available"] != count:
                await asyncio.sleep(0.02)
        return time.monotonic() - begin


@asynccontextmanager
async def fleet(
    folder: Path,
    engine: str,
    count: int = 3,
    *,
    faults: Sequence[Sequence[str]] = (),
    words: Sequence[str] = (),
    common: Sequence[str] = (),
    **service: Any,
) -> AsyncIterator[Fleet]:
    """Run replicas and their gateway.

    Args:
        faults: Options of each replica's process; those that are missing have none.
        words: Options of the gateway.
        common: Options of all replicas.
        service: Fields of the service in the routes.
    """
    model = model_of(engine, folder)
    base = ["--engine", engine, *common]
    if model is not None:
        base += ["--model", str(model)]
    options = [*faults, *([()] * count)][:count]
    replicas = [
        Replica(f"chat_{number}", [*base, *more])
        for number, more in enumerate(options, 1)
    ]
    running = Fleet(folder, engine, replicas, service, words)
    try:
        for replica in replicas:
            await replica.start()
        await running.start_gateway()
        yield running
    finally:
        await running.stop()


def chat(number: int = 0, tokens: int = 16, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"question {number}"}]
    return {
        "model": "chat",
        "messages": messages,
        "max_tokens": tokens,
        "temperature": 0,
        **more,
    }


def stream_of(number: int = 0, tokens: int = 200) -> dict[str, Any]:
    return chat(number, tokens, stream=True, stream_options={"include_usage": True})


def text_of(answer: Answer) -> str:
    """Return the text of a stream."""
    texts = []
    for event in answer.events[:-1]:
        for choice in json.loads(event).get("choices", ()):
            texts.append(choice["delta"].get("content") or "")
    return "".join(texts)


def tokens_of(answer: Answer) -> int:
    """Return the tokens of a stream, as its usage says."""
    usages = [json.loads(event).get("usage") for event in answer.events[:-1]]
    (usage,) = [usage for usage in usages if usage][-1:]
    return int(usage["completion_tokens"])


async def stream(
    running: Fleet, body: dict[str, Any], at: int, do: Callable[[], Awaitable[None]]
) -> Answer:
    """Read a stream; do something once this number of its events has come."""
    client = await running.connect()
    try:
        client.writer.write(request_bytes(body))
        head = await client.reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        received = b""
        is_done = False
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                size = int(await client.reader.readuntil(b"\r\n"), 16)
                if not size:
                    break
                received += await client.reader.readexactly(size)
                await client.reader.readexactly(2)
                if not is_done and received.count(b"\n\n") >= at:
                    is_done = True
                    await do()
        return Answer(status, {}, received)
    finally:
        client.writer.close()


def resident_mb(pid: int) -> float:
    """Return the memory of a process and its children."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    size = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return size + sum(resident_mb(int(child)) for child in children)


def poisson(rate: float, seconds: float, seed: int = 7) -> list[float]:
    """Return moments of arrivals at this rate."""
    chance = random.Random(seed)
    moments = []
    at = chance.expovariate(rate)
    while at < seconds:
        moments.append(at)
        at += chance.expovariate(rate)
    return moments
