"""What the program of a batch exchanges with the head, also while that is away."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from corral.serve.batch_delivery import BatchDelivery, HeadRefusedBatch
from tests.serve.batch_worlds import KEY, Batch, completion, line

CHAT = "/v1/chat/completions"


class MockHead(ThreadingHTTPServer):
    """A gateway with a head behind it, which answers the first requests with 503.

    Attributes:
        status: Status of the batch that the head answers.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.input = b""
        self.away: dict[str, int] = {}
        self.refusal: int | None = None
        self.status = "in_progress"
        self.progress: list[dict[str, Any]] = []
        self.results: dict[str, bytes] = {}
        self.has_answered = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that have left."""


class _Handler(BaseHTTPRequestHandler):
    server: MockHead
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self) -> None:
        body, server = self._body(), self.server
        assert self.headers["Authorization"] == f"Bearer {KEY}"
        if self.path == CHAT:
            prompt = json.loads(body)["messages"][-1]["content"]
            if prompt == "wrong":
                self._write(400, b"{}")
                return
            server.has_answered.set()
            if prompt != "prompt 1":
                server.may_answer.wait(30)
            self._write(200, json.dumps(completion(f"echo {prompt}")).encode())
            return
        what = self.path.removeprefix("/v1/batches/batch_1/")
        if server.refusal is not None:
            self._write(server.refusal, b"no such batch")
        elif server.away.get(what, 0) > 0:
            server.away[what] -= 1
            self._write(503, b"{}")
        elif what == "input":
            self._write(200, server.input)
        elif what == "progress":
            server.progress.append(json.loads(body))
            self._write(200, json.dumps({"status": server.status}).encode())
        else:
            server.results[what] = body
            self._write(200, b"{}")

    def _write(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 - names of the library

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def head() -> Iterator[MockHead]:
    server = MockHead()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def batch_of(tmp_path: Path, head: MockHead, *lines: Any) -> Batch:
    """A batch whose input is at the head."""
    head.input = "".join(f"{json.dumps(one)}\n" for one in lines).encode()
    batch = Batch(tmp_path, head.url, lines, ("--batch", "batch_1"))
    (tmp_path / "input.jsonl").unlink()
    return batch


def ids(results: bytes) -> list[str]:
    return [json.loads(text)["custom_id"] for text in results.splitlines()]


def test_input_and_results_pass_also_if_the_head_is_away_at_first(
    tmp_path: Path, head: MockHead
) -> None:
    head.away = {"input": 2, "results/output": 2, "results/error": 1}
    code, text = batch_of(tmp_path, head, line(1), line(2, "wrong")).run()
    assert code == 0, text
    assert ids(head.results["results/output"]) == ["id-1"]
    assert ids(head.results["results/error"]) == ["id-2"]
    assert head.progress[-1]["state"] == "finished"
    assert head.progress[-1]["unanswered"] == 0


def test_an_attempt_after_the_last_line_delivers_what_is_there(
    tmp_path: Path, head: MockHead
) -> None:
    batch = batch_of(tmp_path, head, line(1), line(2))
    assert batch.run()[0] == 0
    whole = dict(head.results)
    head.results.clear()
    code, text = batch.run()
    assert code == 0
    assert "all lines have answers already" in text
    assert head.results == whole
    assert ids(whole["results/output"]) == ["id-1", "id-2"]
    assert "results/error" not in whole


def test_a_cancelled_batch_delivers_what_it_has(tmp_path: Path, head: MockHead) -> None:
    head.may_answer.clear()
    head.status = "cancelling"
    batch = batch_of(tmp_path, head, line(1), line(2))
    process = batch.start()
    assert head.has_answered.wait(30)
    process.terminate()
    process.communicate(timeout=60)
    head.may_answer.set()
    assert ids(head.results["results/output"]) == ["id-1"]


@pytest.mark.parametrize("status", [403, 404])
def test_a_batch_that_the_head_does_not_have_ends_with_what_it_says(
    tmp_path: Path, head: MockHead, status: int
) -> None:
    head.refusal = status
    code, text = batch_of(tmp_path, head, line(1)).run()
    assert code == 2
    assert "no such batch" in text


def test_a_stop_ends_the_wait_for_the_head(tmp_path: Path) -> None:
    naps: list[float] = []
    delivery = BatchDelivery(
        gateway_url="http://127.0.0.1:9",
        key=KEY,
        batch="batch_1",
        is_over=lambda: len(naps) >= 3,
        sleep=naps.append,
    )
    with pytest.raises(ConnectionError):
        delivery.fetch_input(tmp_path / "input.jsonl")
    assert naps == sorted(naps)
    assert not list(tmp_path.iterdir())


def test_a_refusal_is_not_tried_again(tmp_path: Path, head: MockHead) -> None:
    head.refusal = 404
    delivery = BatchDelivery(gateway_url=head.url, key=KEY, batch="batch_1")
    with pytest.raises(HeadRefusedBatch, match="no such batch"):
        delivery.fetch_input(tmp_path / "input.jsonl")
