"""Events and logs as streams: pushed at once, resumable, ended when the job is."""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from corral.client.sse import Parser, ServerSentEvent
from corral.domain.ids import AttemptNumber, JobId
from corral.wire.agent_messages import LogChunk, encode, from_head
from tests.api.heads import LOG_BYTES, Agent, Head, ended, eventually, serving, up
from tests.api.test_agents import joined, submit
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Head, Agent, str]]:
    """A head, an agent, and a job that runs on it."""
    with serving(tmp_path) as head:
        (agent,) = joined(head, "n1")
        job = submit(head, resources={"gpu": 1})
        agent.until(lambda: any(one.run for one in agent.wanted))
        agent.beat(up((job, 1)))
        eventually(lambda: head.control.world.jobs[JobId(job)].state == "RUNNING")
        yield head, agent, job
        agent.close()


class Reader:
    """A stream that is read in a thread."""

    def __init__(self, head: Head, path: str, **headers: str) -> None:
        self.sent: list[ServerSentEvent] = []
        self.over = threading.Event()
        self.path = path
        self.headers = headers
        self.head = head
        self.thread = threading.Thread(target=self._until_cut, daemon=True)
        self.thread.start()

    def _until_cut(self) -> None:
        with contextlib.suppress(httpx2.TransportError):
            self._read()

    def _read(self) -> None:
        parser = Parser()
        with (
            self.head.http() as http,
            http.stream("GET", self.path, headers=self.headers) as answer,
        ):
            assert answer.headers["content-type"].startswith("text/event-stream")
            for piece in answer.iter_raw():
                self.sent += parser.feed(piece)
        self.over.set()

    def data(self) -> list[Any]:
        return [json.loads(sent.data) for sent in self.sent]

    def text(self, rank: int = 0) -> str:
        return "".join(one["data"] for one in self.data() if one["rank"] == rank)


def finish(head: Head, agent: Agent, job: str) -> None:
    """Report the end until it is recorded, then forget the attempt, as an agent
    does."""
    agent.beat(ended((job, 1)))
    eventually(lambda: head.control.world.state_of(JobId(job)) == "DONE")
    agent.beat()


def ship(head: Head, job: str, offset: int, data: bytes, attempt: int = 1) -> None:
    with head.dial("n1", "/v1/agents/logs") as channel:
        chunk = LogChunk(
            job=JobId(job),
            attempt=AttemptNumber(attempt),
            rank=0,
            offset=offset,
            data=data,
        )
        channel.send(encode(chunk))
        assert from_head(
            channel.recv(PATIENCE_SECONDS, decode=False)
        ).offset == offset + len(data)


def test_a_log_line_reaches_its_reader_at_once(
    running: tuple[Head, Agent, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None waits for the stream's next heartbeat, which never comes here."""
    monkeypatch.setattr("corral.api.event_streams.HEARTBEAT_SECONDS", NEVER_SECONDS)
    head, agent, job = running
    reader = Reader(head, f"/v1/jobs/{job}/logs?follow=1")
    with head.dial("n1", "/v1/agents/logs") as channel:
        offset = 0
        for number in range(5):
            line = f"line {number}\n".encode()
            chunk = LogChunk(
                job=JobId(job),
                attempt=AttemptNumber(1),
                rank=0,
                offset=offset,
                data=line,
            )
            channel.send(encode(chunk))
            offset += len(line)
            eventually(lambda n=number: f"line {n}\n" in reader.text())  # type: ignore[misc]
    finish(head, agent, job)
    assert reader.over.wait(PATIENCE_SECONDS)
    assert reader.data()[-1]["end"] == "DONE"


def test_the_last_bytes_come_although_the_job_is_over(
    running: tuple[Head, Agent, str],
) -> None:
    head, agent, job = running
    reader = Reader(head, f"/v1/jobs/{job}/logs?follow=1")
    agent.beat(ended((job, 1)))
    eventually(lambda: head.control.world.state_of(JobId(job)) == "DONE")
    assert not reader.over.wait(0.2)
    ship(head, job, 0, b"last words\n")  # while the agent still reports the attempt
    agent.beat()
    assert reader.over.wait(PATIENCE_SECONDS)
    assert reader.text() == "last words\n"


def test_a_log_is_resumed_behind_the_last_piece_that_was_read(
    running: tuple[Head, Agent, str],
) -> None:
    head, _, job = running
    ship(head, job, 0, "höher\n".encode())
    first = Reader(head, f"/v1/jobs/{job}/logs")
    assert first.over.wait(PATIENCE_SECONDS)
    place = first.sent[0].id
    assert place == "1:0:7"
    ship(head, job, 7, b"second\n")
    for how in (
        {"path": f"/v1/jobs/{job}/logs?after={place}"},
        {"last_event_id": place},
    ):
        path = how.pop("path", f"/v1/jobs/{job}/logs")
        headers = {"Last-Event-ID": how["last_event_id"]} if how else {}
        again = Reader(head, path, **headers)
        assert again.over.wait(PATIENCE_SECONDS)
        assert again.text() == "second\n"
    last: dict[str, Any] = {
        "rank": None,
        "attempt": None,
        "data": "",
        "end": "RUNNING",
        "times": [],
    }
    assert again.data()[-1] == last


def test_what_rotation_has_taken_from_a_reader_is_told_in_its_place(
    running: tuple[Head, Agent, str],
) -> None:
    """Who was at byte 8, and whoever comes anew, when the head keeps only what is
    newer."""
    head, _, job = running
    size = LOG_BYTES // 2
    # beyond half of the bound: a file of its own
    ship(head, job, 0, b"one\ntwo\n" + b"x" * size)
    ship(head, job, size + 8, b"cut\n" + b"y" * size)
    ship(head, job, 2 * size + 12, b"new\n")
    for place, lost in ((None, size + 12), ("1:0:8", size + 4)):
        query = f"?after={place}" if place else ""
        reader = Reader(head, f"/v1/jobs/{job}/logs{query}")
        assert reader.over.wait(PATIENCE_SECONDS)
        told, _, rest = reader.text().strip("\n").partition("\n")
        assert told.startswith(
            f"[corral] {lost:,} bytes of this log are no longer kept"
        )
        assert rest == "y" * size + "new"


def test_a_character_cut_in_two_is_sent_whole(running: tuple[Head, Agent, str]) -> None:
    head, agent, job = running
    reader = Reader(head, f"/v1/jobs/{job}/logs?follow=1")
    word = "größer\n".encode()
    ship(head, job, 0, word[:3])
    eventually(lambda: reader.text() == "gr")
    ship(head, job, 3, word[3:])
    eventually(lambda: reader.text() == "größer\n")
    finish(head, agent, job)
    assert reader.over.wait(PATIENCE_SECONDS)


def test_a_character_cut_in_two_by_rotation_holds_nobody_up(
    running: tuple[Head, Agent, str],
) -> None:
    head, agent, job = running
    reader = Reader(head, f"/v1/jobs/{job}/logs?follow=1")
    size = LOG_BYTES // 2
    # half of the bound: a file of its own
    ship(head, job, 0, b"x" * size + "ö".encode()[:1])
    ship(head, job, size + 1, "ö".encode()[1:] + b"ffnen\n")
    eventually(lambda: reader.text().endswith("xöffnen\n"))
    finish(head, agent, job)
    assert reader.over.wait(PATIENCE_SECONDS)


def test_tail_gives_the_last_lines_and_rank_only_that_rank(
    running: tuple[Head, Agent, str],
) -> None:
    head, _, job = running
    ship(head, job, 0, b"a\nb\nc\n")
    for query, wanted in (
        ("tail=2", "b\nc\n"),
        ("tail=0", ""),
        ("tail=9", "a\nb\nc\n"),
        ("rank=0", "a\nb\nc\n"),
    ):
        reader = Reader(head, f"/v1/jobs/{job}/logs?{query}")
        assert reader.over.wait(PATIENCE_SECONDS)
        assert reader.text() == wanted, query
    with head.http() as http:
        refused = http.get(f"/v1/jobs/{job}/logs?rank=3")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found")


def test_events_are_pushed_resumed_and_end_with_the_job(
    running: tuple[Head, Agent, str],
) -> None:
    head, agent, job = running
    reader = Reader(head, f"/v1/jobs/{job}/events?follow=1")
    eventually(lambda: len(reader.sent) >= 3)
    kinds = [one["kind"] for one in reader.data()]
    assert kinds[:2] == ["submitted", "placed"]
    place = int(reader.sent[1].id)
    agent.beat(ended((job, 1)))
    assert reader.over.wait(PATIENCE_SECONDS)
    assert reader.sent[-1].kind == "end"
    assert reader.data()[-1]["end"] == "DONE"
    rest = Reader(
        head, f"/v1/jobs/{job}/events?follow=1", **{"Last-Event-ID": str(place)}
    )
    assert rest.over.wait(PATIENCE_SECONDS)
    assert rest.sent == reader.sent[2:]


def test_all_events_go_on_beyond_a_job(running: tuple[Head, Agent, str]) -> None:
    head, agent, job = running
    reader = Reader(head, "/v1/events?follow=1")
    finish(head, agent, job)
    eventually(lambda: any(one["kind"] == "finished" for one in reader.data()))
    assert not reader.over.is_set()
    submit(head, name="next", resources={"gpu": 1})
    eventually(lambda: any("next" in one["text"] for one in reader.data()))


@pytest.mark.parametrize("query", ["after=-1", "after=x", f"after={10**30}"])
def test_an_odd_place_is_refused(head: Head, query: str) -> None:
    with head.http() as http:
        assert http.get(f"/v1/events?{query}").status_code == 422
        answer = http.get("/v1/events", headers={"Last-Event-ID": "x"})
        assert answer.status_code == 422


def test_an_odd_place_in_a_log_is_refused(running: tuple[Head, Agent, str]) -> None:
    head, _, job = running
    with head.http() as http:
        for place in ("x", "1:2", "1:0:-1", "1:0:1,", ",".join(["9" * 9] * 3)):
            status = http.get(f"/v1/jobs/{job}/logs?after={place}").status_code
            assert status == (200 if place == "1:0:1," else 422)


def test_a_reader_who_leaves_is_let_go_of(running: tuple[Head, Agent, str]) -> None:
    head, _, job = running
    bells = head.app.state.house.keeper._bells
    with (
        head.http() as http,
        http.stream("GET", f"/v1/jobs/{job}/logs?follow=1") as answer,
    ):
        pieces = answer.iter_raw()
        next(pieces)
        assert len(bells[job]) == 1
    eventually(lambda: job not in bells)
