"""What an answer of the gateway means for its line."""

import json
import socket
from typing import Any

import pytest

from corral.serve.batch_client import (
    LONGEST_RETRY_AFTER,
    BatchConnection,
    BatchVerdict,
    judge,
)
from corral.serve.batch_file import BatchRequest
from tests.serve.batch_worlds import CHAT, KEY, Reply, mock_server

NO_MODEL = {"error": {"code": "model_not_found"}}


def request(prompt: str = "hi") -> BatchRequest:
    body = {"model": "chat", "messages": [{"role": "user", "content": prompt}]}
    return BatchRequest(url=CHAT, body=json.dumps(body).encode())


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, {"choices": []}, BatchVerdict.FINISHED),
        (200, b"not json", BatchVerdict.RETRY),
        (400, {"error": {}}, BatchVerdict.FINISHED),
        (413, b"too large", BatchVerdict.FINISHED),
        (422, {"error": {"code": "request_quarantined"}}, BatchVerdict.FINISHED),
        (404, {"error": {"code": "not_found"}}, BatchVerdict.FINISHED),
        (404, NO_MODEL, BatchVerdict.AWAY),
        (404, ["x"], BatchVerdict.FINISHED),
        (401, {"error": {"code": "invalid_api_key"}}, BatchVerdict.AWAY),
        (408, {}, BatchVerdict.RETRY),
        (429, {}, BatchVerdict.BUSY),
        (500, {}, BatchVerdict.RETRY),
        (502, b"bad gateway", BatchVerdict.RETRY),
        (503, {}, BatchVerdict.BUSY),
        (504, {}, BatchVerdict.RETRY),
    ],
)
def test_a_status_says_what_becomes_of_the_line(
    status: int, body: Any, verdict: BatchVerdict
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert judge(status, data).verdict is verdict


def test_retry_after_is_bounded_and_only_seconds_are_read() -> None:
    def seconds(text: str | None) -> float | None:
        return judge(503, b"", retry_after=text).retry_after

    assert seconds("7") == 7.0
    assert seconds("9" * 30) == LONGEST_RETRY_AFTER
    assert seconds("Wed, 21 Oct 2026 07:28:00 GMT") is None
    assert seconds("-1") is None
    assert seconds(None) is None


def test_a_request_carries_the_key_and_its_answer_the_id() -> None:
    with mock_server() as server:
        connection = BatchConnection(server.url, KEY)
        answer = connection.send(request())
        assert (answer.status, answer.request_id) == (200, "req-hi")
        assert server.keys == {f"Bearer {KEY}"}
        connection.close()


def test_a_connection_that_was_idle_for_too_long_is_opened_again() -> None:
    with mock_server() as server:
        connection = BatchConnection(server.url, KEY)
        assert connection.send(request("1")).status == 200
        assert connection._connection is not None
        connection._connection.sock.shutdown(socket.SHUT_RDWR)
        assert connection.send(request("2")).status == 200
        connection.close()


def test_a_lost_connection_and_a_missing_gateway_are_told_apart() -> None:
    with mock_server() as server:
        server.behave = lambda prompt, count: Reply(0)
        connection = BatchConnection(server.url, KEY)
        assert connection.send(request()).verdict is BatchVerdict.CUT
        url = server.url
    assert BatchConnection(url, KEY).send(request()).verdict is BatchVerdict.AWAY


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://host", "http://"])
def test_an_address_that_is_not_valid_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not the address of a gateway"):
        BatchConnection(url, KEY)
