"""The server of the small GPT, by real connections."""

import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from corral.serve.tiny import MOST_BODY_BYTES, TinyServer

KEY = "k3y"


class Counter:
    """A model that answers the letter x, and counts its answers."""

    def __init__(self) -> None:
        self.answers = 0
        self.pause_seconds = 0.0

    def next_byte(self, text: bytes, temperature: float) -> int:
        self.answers += 1
        time.sleep(self.pause_seconds)
        return ord("x")


@pytest.fixture
def model() -> Counter:
    return Counter()


@pytest.fixture
def connection(model: Counter) -> Iterator[HTTPConnection]:
    server = TinyServer(
        ("127.0.0.1", 0), next_byte=model.next_byte, names=["chat", "tiny"], key=KEY
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    client = HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    yield client
    client.close()
    server.shutdown()
    thread.join()
    server.server_close()


def post(
    connection: HTTPConnection,
    fields: Any,
    path: str = "/v1/completions",
    key: str = KEY,
) -> HTTPResponse:
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("POST", path, body, headers)
    return connection.getresponse()


def test_its_health_needs_no_key_but_all_else_does(connection: HTTPConnection) -> None:
    connection.request("GET", "/health")
    with connection.getresponse() as answer:
        assert (answer.status, json.load(answer)) == (200, {"status": "ok"})
    connection.request("GET", "/v1/models")
    with connection.getresponse() as answer:
        assert answer.status == 401
        answer.read()
    with post(connection, {"prompt": "a"}, key="other") as answer:
        assert answer.status == 401
        assert "key" in json.load(answer)["error"]["message"]


def test_it_lists_the_names_of_its_model(connection: HTTPConnection) -> None:
    connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {KEY}"})
    with connection.getresponse() as answer:
        assert [one["id"] for one in json.load(answer)["data"]] == ["chat", "tiny"]


def test_one_connection_has_many_requests(connection: HTTPConnection) -> None:
    for _ in range(3):
        with post(connection, {"prompt": "a", "max_tokens": 4}) as answer:
            assert json.load(answer)["choices"][0]["text"] == "xxxx"


def test_a_stream_is_events_that_end_with_done(connection: HTTPConnection) -> None:
    fields = {"prompt": "a", "max_tokens": 3, "stream": True}
    with post(connection, fields) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        *events, done, rest = answer.read().decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    texts = [json.loads(event.removeprefix("data: ")) for event in events]
    assert "".join(one["choices"][0]["text"] for one in texts) == "xxx"


def test_a_client_that_leaves_ends_its_answer(
    connection: HTTPConnection, model: Counter
) -> None:
    model.pause_seconds = 0.001
    fields = {"prompt": "a", "max_tokens": 100_000, "stream": True}
    answer = post(connection, fields)
    answer.readline()
    answer.close()
    connection.close()
    deadline = time.monotonic() + 10
    before = -1
    while before != model.answers:
        assert time.monotonic() < deadline
        before = model.answers
        time.sleep(0.1)
    assert model.answers < 100_000


@pytest.mark.parametrize(
    ("body", "path", "status"),
    [
        (b"{", "/v1/completions", 400),
        (b"\xff", "/v1/completions", 400),
        (b"[" * 100_000, "/v1/completions", 400),
        (b"{}", "/v1/completions", 400),
        (b"{}", "/v1/embeddings", 404),
    ],
)
def test_a_bad_request_is_refused_and_the_connection_stays(
    connection: HTTPConnection, body: bytes, path: str, status: int
) -> None:
    with post(connection, body, path) as answer:
        assert answer.status == status
        assert json.load(answer)["error"]["message"]
    with post(connection, {"prompt": "a"}) as answer:
        assert answer.status == 200
        answer.read()


@pytest.mark.parametrize(
    ("length", "status"),
    [
        (str(MOST_BODY_BYTES + 1), 413),
        ("9" * 30, 413),
        ("-1", 411),
        ("x", 411),
        ("", 411),
    ],
)
def test_a_body_that_is_too_large_or_has_no_length_is_not_read(
    connection: HTTPConnection, length: str, status: int
) -> None:
    connection.putrequest("POST", "/v1/completions")
    connection.putheader("Content-Length", length)
    connection.endheaders()
    with connection.getresponse() as answer:
        assert answer.status == status
        assert answer.headers["Connection"] == "close"
        answer.read()
