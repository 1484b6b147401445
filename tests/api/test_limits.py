"""Garbage is refused with a 4xx, whatever it is; nothing of it gets a 5xx or hangs."""

import json
import socket

import pytest

from corral.api.errors import RequestInvalid
from corral.api.request_body import BODY_BYTES, DEPTH, MOST_KEYS, check_json
from tests.api.heads import TOKENS, Head
from tests.patience import PATIENCE_SECONDS

GARBAGE = {
    "not JSON": b"{",
    "deep": b"[" * 10_000 + b"]" * 10_000,
    "deep objects": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "NaN": b'{"specs": [{"name": "a", "run": "x", "nodes": NaN}], "key": "k"}',
    "infinite": b'{"specs": [{"name": "a", "run": "x", "nodes": 1e400}], "key": "k"}',
    "a long integer": b'{"specs": [{"name": "a", "run": "x", "nodes": '
    + b"9" * 6000
    + b'}], "key": "k"}',
    "an integer that no float holds": b'{"specs": [{"name": "a", "run": "x", "nodes": '
    + b"9" * 400
    + b'}], "key": "k"}',
    "2^63": b'{"specs": [{"name": "a", "run": "x", "nodes": 9223372036854775808}], "key": "k"}',
    "a key twice": b'{"key": "a", "key": "b", "specs": []}',
    "a lone surrogate": b'{"specs": [{"name": "\\ud800", "run": "x"}], "key": "k"}',
    "surrogate in a field": b'{"specs": [{"name": "a", "run": "x", "\\ud800": 1}], "key": "k"}',
    "not UTF-8": b'{"specs": [{"name": "\xff\xfe", "run": "x"}], "key": "k"}',
    "a number": b"1",
    "null": b"null",
    "no specs": b'{"specs": [], "key": "k"}',
    "a long name of a field": b'{"specs": [{"'
    + b"k" * 1_000_000
    + b'": 1}], "key": "k"}',
    "an unknown field": b'{"specs": [{"name": "a", "run": "x"}], "key": "k", "role": "admin"}',
    "100,000 items": b'{"key": "k", "specs": [' + b"{}," * 99_999 + b"{}]}",
    "a key with a newline": b'{"specs": [{"name": "a", "run": "x"}], "key": "k\\nx"}',
    "owner": b'{"specs": [{"name": "a", "run": "x", "owner": "root"}], "key": "k"}',
    "a million tasks": b'{"specs": [{"name": "a", "run": "x", "array": "0-999999"}], "key": "k"}',
}


@pytest.mark.parametrize("what", GARBAGE)
def test_a_body_that_means_nothing_is_refused_and_changes_nothing(
    head: Head, what: str
) -> None:
    with head.http() as http:
        answer = http.post(
            "/v1/jobs",
            content=GARBAGE[what],
            headers={"Content-Type": "application/json"},
        )
        assert 400 <= answer.status_code < 500, answer.text
        assert json.loads(answer.content)["error"]["code"]
        assert http.get("/v1/jobs?all=1").json() == {"jobs": []}


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=1000000000",
        "limit=x",
        "all=perhaps",
        "limit=1&limit=0",
        "limit=1e3",
    ],
)
def test_odd_numbers_in_a_query_are_refused(head: Head, query: str) -> None:
    with head.http() as http:
        assert http.get(f"/v1/jobs?{query}").status_code == 422


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e%2fetc", "a%00b", "%ff", "x" * 5000, "j1'--", "%0a"]
)
def test_odd_names_of_jobs_and_nodes_are_not_found(head: Head, name: str) -> None:
    with head.http() as http:
        for path in (f"/v1/jobs/{name}", f"/v1/jobs/{name}/logs", f"/v1/nodes/{name}"):
            assert http.get(path).status_code in (404, 405), path


def test_a_compressed_or_too_long_body_is_refused_before_it_is_read(head: Head) -> None:
    with head.http() as http:
        zipped = http.post(
            "/v1/jobs", content=b"x", headers={"Content-Encoding": "gzip"}
        )
        assert zipped.status_code == 415
    for length, wanted in (
        (str(BODY_BYTES + 1), b"413"),
        ("9" * 30, b"4"),
        ("-1", b"400"),
    ):
        with socket.create_connection(
            ("127.0.0.1", head.port), timeout=PATIENCE_SECONDS
        ) as connection:
            connection.sendall(
                f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n"
                f"Authorization: Bearer {TOKENS['admin']}\r\n\r\n".encode()
            )
            line = connection.makefile("rb").readline()
            assert line.split()[1].startswith(wanted) if line else True


def test_a_chunked_body_without_end_is_cut_off_at_the_limit(head: Head) -> None:
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with socket.create_connection(
        ("127.0.0.1", head.port), timeout=PATIENCE_SECONDS
    ) as connection:
        connection.sendall(
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Type: application/json\r\n"
            b"Authorization: Bearer " + TOKENS["admin"].encode() + b"\r\n\r\n"
        )
        try:
            for _ in range(BODY_BYTES // 0x10000 + 8):
                connection.sendall(piece)
        except OSError:
            return  # dropped while sending
        assert b"413" in connection.makefile("rb").readline()


@pytest.mark.parametrize(
    "body", ['{"a": 1, "a": 1}', '{"a": [{"b": 1, "b": 2}]}', '{"a": NaN}']
)
def test_what_parsers_disagree_on_is_refused(body: str) -> None:
    with pytest.raises(RequestInvalid):
        check_json(body.encode())


def test_depth_is_counted_outside_of_strings_only() -> None:
    check_json(json.dumps({"a": "[" * 1000 + '\\"{'}).encode())
    check_json(b"[" * DEPTH + b"]" * DEPTH)
    with pytest.raises(RequestInvalid, match="levels"):
        check_json(b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1))


def test_an_object_of_very_many_keys_is_refused_before_a_form_reads_it() -> None:
    """A form makes an error of each key that it does not know."""
    check_json(json.dumps({f"k{place}": 1 for place in range(MOST_KEYS)}).encode())
    with pytest.raises(RequestInvalid, match="more than 10,000 keys"):
        check_json(
            json.dumps([{f"k{place}": 1 for place in range(MOST_KEYS + 1)}]).encode()
        )
