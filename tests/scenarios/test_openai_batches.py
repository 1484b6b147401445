"""Batches by OpenAI's Python client through the gateway of `corral up`: a service starts
from zero, and kills of the gateway, the head and the program lose and repeat no line."""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.house import House, house, until
from tests.scenarios.test_service_gateway import SERVER, ask, gateway_url, record_of

openai = pytest.importorskip("openai")

LINES = 200
SERVICE = """\
kind: service
name: chat
model: tiny
run: python {server}
replicas: 0..2
"""


def requests() -> bytes:
    def line(number: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": f"question {number}"}]
        return {
            "custom_id": f"q{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "tiny", "messages": messages},
        }

    return "".join(f"{json.dumps(line(number))}\n" for number in range(LINES)).encode()


def client_of(here: House) -> Any:
    token = here.place.token.read_text().strip()
    return openai.OpenAI(
        base_url=f"{gateway_url(here)}/v1", api_key=token, max_retries=8
    )


def programs(here: House) -> list[int]:
    """Return the processes of batches in this cluster."""
    pids = here.processes("")
    return [
        pid
        for pid in pids
        if b"corral.serve.batch\0"
        in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b" ", b"\0")
    ]


def test_each_line_is_answered_once_whatever_is_killed(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    slow = SERVER.replace(
        "self.rfile.read", "import time; time.sleep(0.05); self.rfile.read"
    )
    server.write_text(slow)
    file = tmp_path / "chat.yaml"
    file.write_text(SERVICE.format(server=server))
    with house("--nodes", "1", "--gpus", "2") as here:
        try:
            here.ok("apply", "-f", str(file), "-y")
            until(lambda: gateway_url(here), "a gateway runs")
            run(here)
        finally:
            here.ok("down", "-y")


def run(here: House) -> None:
    client = client_of(here)
    uploaded = client.files.create(file=("q.jsonl", requests()), purpose="batch")
    batch = client.batches.create(
        input_file_id=uploaded.id,
        endpoint="/v1/chat/completions",
        completion_window="1h",
        extra_body={"corral": {"concurrency": 4}},
    )

    def done() -> int:
        return int(client.batches.retrieve(batch.id).request_counts.completed)

    # the service has no replica: the batch alone starts one
    until(lambda: done() > 0, "the service has started from zero")
    killed = programs(here)
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    record_of(here).process.signal(signal.SIGKILL)
    until(lambda: gateway_url(here), "another gateway runs")
    client = client_of(here)
    until(lambda: done() < LINES, "it goes on")
    here.kill_head()
    here.up()
    until(lambda: client.batches.retrieve(batch.id).status == "completed", "it ends")
    check(here, client, client.batches.retrieve(batch.id))
    assert ask(here).status_code == 200


def check(here: House, client: Any, batch: Any) -> None:
    """Check that each line has one answer, and that all see the batch."""
    text = client.files.content(batch.output_file_id).text
    counts = Counter(json.loads(line)["custom_id"] for line in text.splitlines())
    assert counts == Counter(f"q{number}" for number in range(LINES))
    assert batch.error_file_id is None
    assert batch.request_counts.completed == LINES
    assert batch.usage.total_tokens == 9 * LINES
    assert [one.id for one in client.batches.list()] == [batch.id]
    [row] = here.answer("batch", "ls")["batches"]
    assert (row["id"], row["state"]) == (batch.model_extra["corral"]["job"], "DONE")
