"""Snapshots: what the digest says, whole, once; or nothing."""

import contextlib
import hashlib
import os
import socket
import time
from typing import Any

import pytest

from corral.api import uploads
from tests.api.heads import TOKENS, Head
from tests.patience import PATIENCE_SECONDS

DATA = b"a workdir" * 1000
DIGEST = hashlib.sha256(DATA).hexdigest()


def kept(head: Head) -> list[str]:
    return sorted(path.name for path in (head.root / "snapshots").glob("*"))


def test_a_snapshot_is_kept_once_and_found_again(head: Head) -> None:
    with head.http("alice") as http:
        assert http.head(f"/v1/snapshots/{DIGEST}").status_code == 404
        for _ in range(2):
            answer = http.put(f"/v1/snapshots/{DIGEST}", content=DATA)
            assert answer.json() == {"sha256": DIGEST, "size_bytes": len(DATA)}
        assert http.head(f"/v1/snapshots/{DIGEST}").status_code == 200
    assert kept(head) == [f"{DIGEST}.tar.gz"]
    assert (head.root / "snapshots" / f"{DIGEST}.tar.gz").read_bytes() == DATA


def test_other_bytes_than_the_digest_says_leave_nothing(head: Head) -> None:
    before = kept(head)
    with head.http() as http:
        answer = http.put(f"/v1/snapshots/{'0' * 64}", content=DATA)
        assert answer.status_code == 422
        assert "send the snapshot again" in answer.json()["error"]["hint"]
    assert kept(head) == before


@pytest.mark.parametrize(
    "name", ["abc", "A" * 64, "..%2f..%2fx", "0" * 65, "g" * 64, "0" * 63 + "%00"]
)
def test_a_name_that_is_no_digest_is_refused(head: Head, name: str) -> None:
    before = kept(head)
    with head.http() as http:
        assert http.put(f"/v1/snapshots/{name}", content=DATA).status_code in (
            404,
            405,
            422,
        )
        assert http.head(f"/v1/snapshots/{name}").status_code in (404, 405)
    assert kept(head) == before


def test_more_than_the_cap_is_refused_said_or_found(head: Head) -> None:
    big = b"x" * 100_001
    digest = hashlib.sha256(big).hexdigest()
    before = kept(head)
    with head.http() as http:
        assert http.put(f"/v1/snapshots/{digest}", content=big).status_code == 413
        pieces = (big[at : at + 1000] for at in range(0, len(big), 1000))
        assert http.put(f"/v1/snapshots/{digest}", content=pieces).status_code == 413
    assert kept(head) == before


def test_a_sender_who_breaks_off_leaves_nothing(head: Head) -> None:
    before = kept(head)
    with socket.create_connection(
        ("127.0.0.1", head.port), timeout=PATIENCE_SECONDS
    ) as connection:
        connection.sendall(
            f"PUT /v1/snapshots/{'1' * 64} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n"
            f"Authorization: Bearer {TOKENS['admin']}\r\n\r\nhalf".encode()
        )
    with head.http() as http:
        assert http.head(f"/v1/snapshots/{'1' * 64}").status_code == 404
    deadline = [name for name in kept(head) if name not in before]
    assert all(name.endswith(".part") for name in deadline)


def test_an_upload_that_does_not_go_on_is_refused_and_leaves_nothing(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that sends a byte now and then: its quota and its part of a file are
    free again."""
    monkeypatch.setattr(uploads, "UPLOAD_SECONDS", 0.3)
    before = kept(head)
    ask = (
        f"PUT /v1/snapshots/{'2' * 64} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n"
        f"Authorization: Bearer {TOKENS['alice']}\r\n\r\n"
    )
    with socket.create_connection(
        ("127.0.0.1", head.port), timeout=PATIENCE_SECONDS
    ) as connection:
        connection.sendall(ask.encode())
        connection.settimeout(0.05)
        answer, deadline = b"", time.monotonic() + PATIENCE_SECONDS
        while not answer:
            assert time.monotonic() < deadline, "it was held open"
            connection.sendall(b"a")
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(65536)
        connection.settimeout(PATIENCE_SECONDS)
        with contextlib.suppress(ConnectionError):
            while more := connection.recv(65536):
                answer += more
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"too_slow" in answer
    assert kept(head) == before
    assert not head.app.state.house.quotas.under_way


def test_time_for_an_upload_grows_with_what_has_come() -> None:
    assert uploads.upload_seconds(0) == uploads.UPLOAD_SECONDS
    a_minute = 60 * uploads.UPLOAD_BYTES_PER_SECOND
    assert uploads.upload_seconds(a_minute) == uploads.UPLOAD_SECONDS + 60


def test_who_asks_for_a_snapshot_keeps_it_a_while(head: Head) -> None:
    digest = hashlib.sha256(b"asked").hexdigest()
    path = head.root / "snapshots" / f"{digest}.tar.gz"
    with head.http() as http:
        spec = {"name": "a", "run": "x", "workdir": digest}
        asks: list[tuple[str, str, Any]] = [
            ("PUT", f"/v1/snapshots/{digest}", {"content": b"asked"}),
            ("HEAD", f"/v1/snapshots/{digest}", {}),
            ("POST", "/v1/jobs?dry_run=1", {"json": {"specs": [spec], "key": "k"}}),
        ]
        http.request("PUT", asks[0][1], content=b"asked")
        for method, route, sent in asks:
            os.utime(path, (1.0, 1.0))
            assert http.request(method, route, **sent).status_code == 200
            assert path.stat().st_mtime > 1.0
