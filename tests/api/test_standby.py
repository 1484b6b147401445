"""A head that stands by is a door to the one that leads: nothing is refused there but
what is its own, and nothing hangs on it once it leads itself or another does."""

import asyncio
import hashlib
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from corral.api import ApiSettings, Forwarder, Front, Standby
from tests.api.heads import Agent, Head, RealClock, eventually, serving, up
from tests.api.test_agents import submit
from tests.api.test_streams import Reader


class Second(Head):
    """A head on the same store that stands by; `of` is the one that leads, if any
    does."""

    of: Head | None

    def _app(self, settings: ApiSettings) -> Any:
        self.front, self.settings = Front(), settings
        self.forwarders: list[Forwarder] = []
        self.stand_by(self.of.url if self.of else None)
        return self.front

    def _works(self) -> list[Coroutine[Any, Any, None]]:
        return [self.control.run()]

    def stand_by(self, url: str | None) -> None:
        forwarder = Forwarder(url, None, self.settings.seals) if url else None
        self.forwarders += [forwarder] if forwarder else []
        app = Standby(
            store=self.of.store if self.of else self.store,
            clock=RealClock(),
            settings=self.settings,
            forwarder=forwarder,
        )
        self.front.turn(app)

    def close(self) -> None:
        for forwarder in self.forwarders:
            self.run(forwarder.close())
        super().close()

    def turn_to(self, url: str | None) -> None:
        self.loop.call_soon_threadsafe(self.stand_by, url)
        self.run(asyncio.sleep(0))  # it has turned then


@contextmanager
def second(root: Path, of: Head | None) -> Iterator[Second]:
    made = Second(root)
    made.of = of
    made.start()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Head, Second]]:
    with serving(tmp_path / "a") as leader, second(tmp_path / "b", leader) as standby:
        yield leader, standby


def test_without_a_token_it_says_that_it_stands_by_and_not_who_leads(
    pair: tuple[Head, Second],
) -> None:
    _, standby = pair
    with standby.http(None) as http:
        said = http.get("/healthz").json()
    assert said == {"status": "standing by"}


def test_what_is_asked_of_it_is_answered_by_the_leader(
    pair: tuple[Head, Second],
) -> None:
    leader, standby = pair
    with standby.http("alice") as http, leader.http("alice") as direct:
        spec = {"name": "there", "run": "true", "resources": {"gpu": 0}}
        made = http.post("/v1/jobs", json={"specs": [spec], "key": "k"})
        assert made.status_code == 201
        id = made.json()["jobs"][0]["id"]
        assert direct.get(f"/v1/jobs/{id}").json() == http.get(f"/v1/jobs/{id}").json()
        assert http.get("/v1/jobs", params={"limit": 1}).json()["jobs"][0]["id"] == id
        refused = http.get("/v1/jobs/none%2Fsuch")
        assert (
            refused.status_code == direct.get("/v1/jobs/none%2Fsuch").status_code == 404
        )
        assert (
            http.get("/v1/users", headers={"Authorization": "Bearer x"}).status_code
            == 401
        )


def test_a_snapshot_is_sent_through_it_and_known_afterwards(
    pair: tuple[Head, Second],
) -> None:
    leader, standby = pair
    body = b"a workdir" * 9_000
    digest = hashlib.sha256(body).hexdigest()
    with standby.http("alice") as http:
        assert http.head(f"/v1/snapshots/{digest}").status_code == 404
        assert http.put(f"/v1/snapshots/{digest}", content=body).json()[
            "size_bytes"
        ] == len(body)
        known = http.head(f"/v1/snapshots/{digest}")
        assert (known.status_code, known.headers["x-size-bytes"]) == (
            200,
            str(len(body)),
        )


def test_an_agent_talks_through_it_and_a_stream_flows(
    pair: tuple[Head, Second],
) -> None:
    leader, standby = pair
    agent = Agent(standby, "n1").hello()
    agent.beat()
    eventually(lambda: agent.node in leader.control.world.nodes)
    job = submit(leader, resources={"gpu": 1})
    reader = Reader(standby, f"/v1/jobs/{job}/events?follow=1")
    agent.until(lambda: any(one.run for one in agent.wanted))
    agent.beat(up((job, 1)))
    eventually(lambda: leader.control.world.jobs[job].state == "RUNNING")  # type: ignore[index]
    eventually(lambda: any("RUNNING" in one.data for one in reader.sent))
    agent.close()


def test_a_refused_handshake_is_refused_with_the_leaders_words(
    pair: tuple[Head, Second],
) -> None:
    _, standby = pair
    with (
        pytest.raises(InvalidStatus) as no,
        standby.dial("alice", "/v1/agents/heartbeats"),
    ):
        pass
    assert no.value.response.status_code == 403
    assert b"forbidden" in (no.value.response.body or b"")


def test_without_a_leader_it_says_when_to_come_again(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as leader:
        url = leader.url
    with second(tmp_path / "b", None) as standby, standby.http() as http:
        for found in (None, url):  # nobody, and one that has just gone
            standby.turn_to(found)
            answer = http.get("/v1/status")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            assert answer.json()["error"]["code"] == "no_leader"
            assert "try again in a few seconds" in answer.json()["error"]["hint"]
            with (
                pytest.raises(InvalidStatus),
                standby.dial("n1", "/v1/agents/heartbeats"),
            ):
                pass


def test_what_is_open_is_ended_when_another_leads(pair: tuple[Head, Second]) -> None:
    leader, standby = pair
    follow = "/v1/events?follow=1"
    with (
        standby.dial("n1", "/v1/agents/logs") as connection,
        standby.http() as http,
        http.stream("GET", follow) as stream,
    ):
        assert stream.status_code == 200
        standby.turn_to(None)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(60)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        for _ in stream.iter_raw():
            pass


def test_only_an_admin_ends_it_and_it_stops_no_jobs(pair: tuple[Head, Second]) -> None:
    leader, standby = pair
    submit(leader, resources={"gpu": 1})
    with standby.http("alice") as user:
        assert user.post("/v1/head/down", json={"jobs": "leave"}).status_code == 403
    with standby.http() as admin:
        refused = admin.post("/v1/head/down", json={"jobs": "stop"})
        assert refused.status_code == 409
        assert "corral down --leave" in refused.json()["error"]["hint"]
        assert admin.post("/v1/head/down", json={"jobs": "now"}).status_code == 422
        assert not standby.stopped.is_set()
        assert admin.post("/v1/head/down", json={"jobs": "leave"}).status_code == 202
    assert standby.stopped.wait(60)
    assert not leader.stopped.is_set()


def test_another_name_than_its_own_is_refused(pair: tuple[Head, Second]) -> None:
    _, standby = pair
    with httpx2.Client(base_url=standby.url, trust_env=False) as http:
        assert http.get("/healthz", headers={"Host": "evil.example"}).status_code == 421
