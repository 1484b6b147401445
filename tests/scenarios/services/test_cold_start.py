"""A service without a replica, on a whole cluster: requests wait for one start, however
many they are."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.scenarios.house import House, house, until
from tests.scenarios.services.fleet import ENGINES, model_of
from tests.scenarios.test_service_gateway import SERVER, gateway_url

REQUESTS = 20
SERVICE = """\
kind: service
name: chat
model: {model}
replicas: 0..3
scale: {{queue: 100}}
limits: {{deadline: 60s}}
env: {{PATH: "{path}"}}
"""
SLOW_START = "run: sleep 2; exec python {server}\n"
LLAMA = "engine: llama.cpp\n"


@contextmanager
def cold(tmp_path: Path, engine: str) -> Iterator[House]:
    """A cluster with the service `chat`, which has no replica and a gateway."""
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    model = model_of(engine, tmp_path) or "tiny"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    start = LLAMA if engine == "llama" else SLOW_START.format(server=server)
    file = tmp_path / "chat.yaml"
    file.write_text(SERVICE.format(model=model, path=path) + start)
    with house("--nodes", "1") as here:
        try:
            here.ok("apply", "-f", str(file), "-y")
            until(lambda: gateway_url(here), "a gateway runs")
            yield here
        finally:
            here.ok("down", "-y")


def models(url: str, token: str) -> list[str]:
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx2.get(f"{url}/v1/models", headers=headers, trust_env=False)
    return [row["id"] for row in answer.json()["data"]]


def ask(url: str, token: str, number: int) -> int:
    body = {
        "model": "chat",
        "messages": [{"role": "user", "content": f"question {number}"}],
        "max_tokens": 8,
    }
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx2.post(
        f"{url}/v1/chat/completions",
        headers=headers,
        json=body,
        timeout=90.0,
        trust_env=False,
    )
    return answer.status_code


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_a_cold_service_starts_once_for_all_who_wait(
    tmp_path: Path, engine: str
) -> None:
    with cold(tmp_path, engine) as here:
        url, token = gateway_url(here), here.place.token.read_text().strip()
        until(lambda: "chat" in models(url, token), "the gateway has the service")
        assert [job for job in here.jobs() if job.name.startswith("chat_")] == []
        with ThreadPoolExecutor(REQUESTS) as pool:
            statuses = list(
                pool.map(lambda number: ask(url, token, number), range(REQUESTS))
            )
        assert statuses == [200] * REQUESTS
        replicas = [job.name for job in here.jobs() if job.name.startswith("chat_")]
        assert replicas == ["chat_1"]
