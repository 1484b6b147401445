"""Adapters on real llama.cpp replicas: each request is answered with its own weights."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from corral.wire.gateway_routes import RoutesFile
from tests.gateway.worlds import World, gateway, play

EXAMPLE = Path("examples/serve_llama_cpp").resolve()
KEY = "engine-key"
PROMPT = [{"role": "user", "content": "once upon a time"}]
MODELS = ("chat", "legal", "tone")


def make(script: str, *words: object) -> None:
    command = [sys.executable, str(EXAMPLE / script), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, check=True, env=environment, capture_output=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def replica(folder: Path, *adapters: str) -> Iterator[int]:
    """Run a replica with these adapters. Yields its port."""
    port = free_port()
    words = ["--model", "base.gguf", "--host", "127.0.0.1", "--port", str(port)]
    for adapter in adapters:
        words += ["--lora", str(folder / f"{adapter}.gguf")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CORRAL_REPLICA_KEY": KEY,
    }
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "corral.serve.llama_cpp", *words),
            *("--alias", "chat"),
        ],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        process.kill()
        process.wait()


def body(model: str, **more: Any) -> dict[str, Any]:
    return {
        "model": model,
        "messages": PROMPT,
        "max_tokens": 24,
        "temperature": 0,
        **more,
    }


async def text_of(world: World, model: str) -> str:
    """Wait until the replicas have loaded the model, and return an answer."""
    async with asyncio.timeout(60):
        while (answer := await world.post(body(model))).status == 503:
            await asyncio.sleep(0.1)
    return str(answer.json["choices"][0]["message"]["content"])


async def streamed(world: World, model: str) -> str:
    answer = await world.post(body(model, stream=True))
    assert answer.events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in answer.events[:-1]]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


@pytest.mark.soak
def test_each_adapter_answers_with_its_weights_on_every_replica_that_has_it(
    tmp_path: Path,
) -> None:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    make("make_gguf.py", "--out", tmp_path / "base.gguf")
    for seed, name in enumerate(MODELS[1:], 1):
        make("make_adapter.py", "--out", tmp_path / f"{name}.gguf", "--seed", seed)

    async def scenario(ports: list[int]) -> None:
        state = {
            "version": 1,
            "open": True,
            "services": [
                {
                    "name": "chat",
                    "models": ["chat"],
                    "replicas": [
                        {
                            "name": f"r{port}",
                            "host": "127.0.0.1",
                            "port": port,
                            "key": KEY,
                        }
                        for port in ports
                    ],
                    "continues": "llama.cpp",
                    "adapter_calls": "llama.cpp",
                    "max_adapters": 64,
                    "adapters": [
                        {"name": name, "path": str(tmp_path / f"{name}.gguf")}
                        for name in MODELS[1:]
                    ],
                }
            ],
        }
        async with gateway(routes=msgspec.convert(state, RoutesFile)) as world:
            texts = {model: await text_of(world, model) for model in MODELS}
            assert len(set(texts.values())) == len(MODELS)
            for _ in range(4):
                for model in MODELS:
                    assert await text_of(world, model) == texts[model]
                    assert await streamed(world, model) == texts[model]
            asked = [streamed(world, MODELS[number % 3]) for number in range(12)]
            answers = await asyncio.gather(*asked)
            assert answers == [texts[MODELS[number % 3]] for number in range(12)]
            pools = world.core.services["chat"].pools.values()
            world.core.update_routes(RoutesFile(version=2))  # closes the connections
            await world.until(lambda: not any(pool._idle for pool in pools))

    with replica(tmp_path, "tone", "legal") as one, replica(tmp_path, "legal") as two:
        play(scenario([one, two]))
