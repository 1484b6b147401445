"""A mock OpenAI server, and batches that run against it."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CHAT = "/v1/chat/completions"
KEY = "cj.j1.1.feed"


@dataclass
class Reply:
    """Answer of the mock server; status 0 closes the connection instead."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def completion(text: str) -> dict[str, Any]:
    """A chat completion."""
    return {
        "choices": [{"message": {"role": "assistant", "content": text}}],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }


def refusal(status: int, code: str = "", **headers: str) -> Reply:
    body = {"error": {"message": "no", "code": code}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, body, named)


class MockOpenAI(ThreadingHTTPServer):
    """Server whose answers are the results of `behave`, by prompt and number of the
    request for this prompt, from 1."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.behave: Callable[[str, int], Reply] = answer_echo
        self.prompts: list[str] = []
        self.models: list[str] = []
        self.keys: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.under_way = 0
        self.most_under_way = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that were killed."""


def answer_echo(prompt: str, count: int) -> Reply:
    return Reply(body=completion(f"echo {prompt}"))


class _Handler(BaseHTTPRequestHandler):
    server: MockOpenAI
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"]
        server = self.server
        with server.lock:
            server.prompts.append(prompt)
            server.models.append(body["model"])
            server.keys.add(self.headers["Authorization"])
            server.counts[prompt] += 1
            count = server.counts[prompt]
            server.under_way += 1
            server.most_under_way = max(server.most_under_way, server.under_way)
        try:
            reply = server.behave(prompt, count)
        finally:
            with server.lock:
                server.under_way -= 1
        if reply.status == 0:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        text = reply.body if isinstance(reply.body, bytes) else None
        data = json.dumps(reply.body).encode() if text is None else text
        self.send_response(reply.status)
        self.send_header("x-request-id", f"req-{prompt}")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def mock_server(port: int = 0) -> Iterator[MockOpenAI]:
    server = MockOpenAI(port)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def line(number: int | str, prompt: str | None = None, **more: Any) -> dict[str, Any]:
    """One line of a batch, as a value."""
    text = f"prompt {number}" if prompt is None else prompt
    body = {"messages": [{"role": "user", "content": text}]}
    return {
        "custom_id": f"id-{number}",
        "method": "POST",
        "url": CHAT,
        "body": body,
        **more,
    }


def write_lines(path: Path, lines: Sequence[Any]) -> Path:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


@dataclass
class Batch:
    """A batch whose attempts run as processes, each in a work folder of its own.

    Args:
        root: Folder with the input and with what the attempts share.
    """

    root: Path
    url: str
    lines: Sequence[Any]
    arguments: tuple[str, ...] = ()
    attempts: int = 0

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        write_lines(self.root / "input.jsonl", self.lines)

    @property
    def state_folder(self) -> Path:
        return self.root / "shared" / "batch-b1"

    @property
    def work_folder(self) -> Path:
        return self.root / f"work{self.attempts}"

    def start(self, **environment: str) -> subprocess.Popen[str]:
        """Start the next attempt."""
        self.attempts += 1
        self.work_folder.mkdir()
        words = [str(self.root / "input.jsonl"), "--service", "chat", "--id", "b1"]
        kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
        return subprocess.Popen(
            [sys.executable, "-m", "corral.serve.batch", *words, *self.arguments],
            cwd=self.work_folder,
            env={
                **kept,
                "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
                "CORRAL_SHARED": str(self.root / "shared"),
                "OPENAI_BASE_URL": self.url and f"{self.url}/v1",
                "CORRAL_TOKEN": KEY,
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, **environment: str) -> tuple[int, str]:
        """Run an attempt to its end. Return its exit code and its output."""
        process = self.start(**environment)
        text, _ = process.communicate(timeout=60)
        return process.returncode, text

    def records(self, name: str) -> list[dict[str, Any]]:
        return records_of(self.work_folder / f"{name}.jsonl")

    @property
    def progress(self) -> dict[str, Any]:
        progress = json.loads((self.work_folder / "progress.json").read_text())
        assert isinstance(progress, dict)
        return progress


def records_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()
