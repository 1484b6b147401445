"""The agents' channel: who may talk, what is believed, and what an agent is told."""

import contextlib
import uuid
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from uvicorn.protocols.utils import ClientDisconnected
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus

from corral.api.disk_reserve import Room
from corral.domain.attempt import Save
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.wire.agent_messages import (
    HeartbeatAck,
    Hello,
    LogAt,
    LogChunk,
    encode,
    from_head,
)
from tests.api.heads import Agent, Head, ended, eventually, serving, up
from tests.patience import PATIENCE_SECONDS
from tests.worlds import inventory


@pytest.fixture
def fresh(tmp_path: Path) -> Any:
    with serving(tmp_path) as head:
        yield head


def submit(head: Head, **spec: Any) -> str:
    with head.http() as http:
        body = {"specs": [{"name": "job", "run": "x", **spec}], "key": uuid.uuid4().hex}
        answer = http.post("/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["jobs"][0]["id"])


def joined(head: Head, *names: str) -> list[Agent]:
    agents = [Agent(head, name).hello() for name in names]
    for agent in agents:
        agent.beat()
        eventually(lambda agent=agent: agent.node in head.control.world.nodes)  # type: ignore[misc]
    return agents


def test_a_head_that_ends_tells_each_agent_of_the_other_heads(fresh: Head) -> None:
    """With the next heartbeat would be too late: there may be none."""
    first, second = joined(fresh, "n1", "n2")
    fresh.run(fresh.channels.announce_heads(("http://b:1", "http://c:1"), 7.0))
    for agent in (first, second):
        message = agent.receive()
        while not isinstance(message, HeartbeatAck):
            message = agent.receive()
        assert (message.number, message.heads) == (0, ("http://b:1", "http://c:1"))
        agent.beat()
        assert agent.heard.heads == (), "nothing is told twice"
        agent.close()


def close_code(agent: Agent) -> int:
    """The code that the head ends the talk with."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            agent.receive()
    agent.close()
    return agent.connection.close_code or 0


def test_a_job_reaches_its_agent_at_once_and_is_acknowledged_by_version(
    fresh: Head,
) -> None:
    (agent,) = joined(fresh, "n1")
    job = submit(fresh, resources={"gpu": 1})
    agent.until(lambda: any(one.run for one in agent.wanted))
    assert agent.wanted[-1].run[0].key == (job, 1)
    told = len(agent.wanted)
    agent.beat(up((job, 1)))
    agent.beat(up((job, 1)))
    assert len(agent.wanted) == told  # an agent that follows is told nothing twice
    agent.close()


def test_nothing_of_the_app_stands_between_the_gate_and_what_agents_hold_open(
    fresh: Head,
) -> None:
    """A layer in every connection's way costs a head with 1,000 agents megabytes."""
    with mock.patch.object(
        WebSocketRoute, "handle", side_effect=AssertionError("by the app")
    ):
        (agent,) = joined(fresh, "n1")
        chunk = LogChunk(
            job=JobId("j1"), attempt=AttemptNumber(1), rank=0, offset=0, data=b"x"
        )
        with fresh.dial("n1", "/v1/agents/logs") as logs:
            logs.send(encode(chunk))
            assert isinstance(
                from_head(logs.recv(timeout=PATIENCE_SECONDS, decode=False)), LogAt
            )
        agent.close()


def test_an_agent_that_comes_back_is_told_what_it_missed(fresh: Head) -> None:
    (agent,) = joined(fresh, "n1")
    agent.close()
    eventually(lambda: not fresh.channels.is_connected(NodeId("n1")))
    job = submit(fresh, resources={"gpu": 1})
    agent = Agent(fresh, "n1").hello()
    agent.beat()
    agent.until(lambda: any(one.run for one in agent.wanted))
    assert agent.wanted[-1].run[0].key == (job, 1)
    agent.close()


@pytest.mark.parametrize("path", ["heartbeats", "logs"])
def test_an_agent_that_has_gone_before_it_is_answered_is_no_fault_of_ours(
    fresh: Head, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        mock.patch.object(WebSocket, "accept", side_effect=ClientDisconnected()),
        contextlib.suppress(InvalidStatus, ConnectionClosed, InvalidMessage),
        fresh.dial("n1", f"/v1/agents/{path}"),
    ):
        pass
    assert "bug" not in caplog.messages


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"protocol": 0}, 4400),
        ({"protocol": 99}, 4400),
        ({"node": "n2"}, 4403),
        ({"address": "; rm -rf /"}, 4422),
    ],
)
def test_a_wrong_hello_is_refused_with_its_code(
    head: Head, what: dict[str, Any], code: int
) -> None:
    assert close_code(Agent(head, "n1").hello(**what)) == code


@pytest.mark.parametrize(
    "frame", [b"", b"\xc1", b"\x81\xa4type\xa1x", b"\x90" * 100_000, "text"]
)
def test_a_malformed_frame_ends_the_talk_and_is_counted(
    head: Head, frame: bytes | str
) -> None:
    before = head.channels.refused["malformed"]
    first = Agent(head, "n1")
    first.connection.send(frame)
    assert close_code(first) == 4422
    second = Agent(head, "n1").hello()
    second.connection.send(frame)
    assert close_code(second) == 4422
    assert head.channels.refused["malformed"] == before + 2


def test_a_newer_connection_of_the_same_boot_takes_over(fresh: Head) -> None:
    (old,) = joined(fresh, "n1")
    new = Agent(fresh, "n1").hello()
    new.beat()
    assert close_code(old) == 4409
    new.beat()
    assert fresh.channels.is_connected(NodeId("n1"))
    new.close()


def test_a_twin_with_another_boot_is_refused_while_the_first_is_alive(
    fresh: Head,
) -> None:
    (first,) = joined(fresh, "n1")
    assert close_code(Agent(fresh, "n1", boot="boot-2").hello()) == 4409
    first.beat()
    first.close()
    eventually(lambda: not fresh.channels.is_connected(NodeId("n1")))
    second = Agent(fresh, "n1", boot="boot-2").hello()
    second.beat()
    second.close()


def test_a_node_cannot_end_or_save_another_nodes_job(fresh: Head) -> None:
    first, second = joined(fresh, "n1", "n2")
    job = submit(fresh, resources={"gpu": 1}, checkpoint="/shared/c")
    first.beat(up((job, 1)))
    second.beat()
    owner = fresh.control.world.attempts[JobId(job)].nodes[0]
    honest, liar = (first, second) if owner == "n1" else (second, first)
    honest.beat(up((job, 1)))
    eventually(lambda: fresh.control.world.jobs[JobId(job)].state == "RUNNING")
    save = Save(
        job=JobId(job),
        attempt=AttemptNumber(1),
        step=9,
        path="/evil",
        manifest_sha256="0" * 64,
        size_bytes=1,
        seconds=1.0,
        stall_seconds=0.0,
        at=1.0,
    )
    before = fresh.channels.refused["not_yours"]
    liar.beat(ended((job, 1), saves=(save,)))
    liar.beat(ended((job, 2)))
    liar.beat(up(("j999", 1), saves=(save,)))
    honest.beat(up((job, 1)))
    assert fresh.channels.refused["not_yours"] == before + 3
    with fresh.http() as http:
        shown = http.get(f"/v1/jobs/{job}").json()
    assert (shown["state"], shown["checkpoints"], shown["attempt"]) == (
        "RUNNING",
        [],
        1,
    )
    assert [seen.key for seen in fresh.control.facts.nodes[liar.node].seen] == [
        ("j999", 1)
    ]
    honest.close()
    liar.close()


def test_secrets_and_workdirs_are_given_only_to_the_node_that_has_the_attempt(
    fresh: Head,
) -> None:
    (first,) = joined(fresh, "n1")
    with fresh.http() as http:
        assert (
            http.put("/v1/secrets/HF_TOKEN", json={"value": "canary-9"}).status_code
            == 204
        )
        assert (
            http.put("/v1/secrets/NOT_SET", json={"value": "canary-8"}).status_code
            == 204
        )
        digest = _workdir(http)
    spec = {
        "secrets": ["HF_TOKEN", "NOT_SET"],
        "workdir": digest,
        "resources": {"gpu": 1},
    }
    job = submit(fresh, **spec)
    first.until(lambda: any(one.run for one in first.wanted))
    with fresh.http() as http:
        assert http.delete("/v1/secrets/NOT_SET").status_code == 204
    with fresh.http("n1") as mine, fresh.http("n2") as other:
        owner = f"/v1/agents/owners/{job}/1"
        assert [mine.get(owner).json() for _ in range(2)] == [{"number": 0}] * 2
        assert other.get(owner).status_code == 403
        secrets = f"/v1/agents/secrets/{job}/1"
        assert mine.get(secrets).json() == {"secrets": {"HF_TOKEN": "canary-9"}}
        assert mine.get(f"/v1/agents/snapshots/{digest}").content == b"content"
        assert other.get(secrets).status_code == 403
        assert other.get(f"/v1/agents/snapshots/{digest}").status_code == 403
        for path in (f"/v1/agents/secrets/{job}/2", "/v1/agents/secrets/j999/1"):
            assert mine.get(path).status_code == 403
        first.beat(ended((job, 1)))
        # over: nothing more to be had
        eventually(lambda: mine.get(secrets).status_code == 403)
    first.close()


def _workdir(http: Any) -> str:
    import hashlib

    digest = hashlib.sha256(b"content").hexdigest()
    assert http.put(f"/v1/snapshots/{digest}", content=b"content").status_code == 200
    return digest


def test_logs_are_kept_by_offset_and_only_of_the_nodes_own_ranks(fresh: Head) -> None:
    (first,) = joined(fresh, "n1")
    job = submit(fresh, resources={"gpu": 1})
    first.until(lambda: any(one.run for one in first.wanted))

    def ship(who: str, offset: int, data: bytes, rank: int = 0, name: str = job) -> int:
        with fresh.dial(who, "/v1/agents/logs") as channel:
            chunk = LogChunk(
                job=JobId(name),
                attempt=AttemptNumber(1),
                rank=rank,
                offset=offset,
                data=data,
            )
            channel.send(encode(chunk))
            answer = from_head(channel.recv(PATIENCE_SECONDS, decode=False))
        assert isinstance(answer, LogAt)
        return answer.offset

    kept = fresh.root / "logs" / job / "1" / "rank-0.log"
    assert ship("n1", 0, b"") == 0
    assert ship("n1", 0, b"hello\n") == 6
    assert ship("n1", 0, b"hello\nworld\n") == 12
    assert ship("n2", 12, b"forged\n") == 19  # taken, and dropped
    assert ship("n1", 0, b"forged\n", rank=1) == 7
    assert ship("n1", 0, b"forged\n", name="../../x") == 7
    assert kept.read_bytes() == b"hello\nworld\n"
    assert sorted(path.name for path in fresh.root.rglob("*.log")) == ["rank-0.log"]
    first.close()


def test_a_frame_longer_than_the_protocols_limit_is_refused(head: Head) -> None:
    agent = Agent(head, "n1")
    agent.connection.send(b"\0" * (5 * 1024 * 1024))
    assert close_code(agent) in (4422, 1009)


def test_hello_carries_a_valid_inventory_or_none_is_taken(head: Head) -> None:
    agent = Agent(head, "n1")
    hello = Hello(
        protocol=1,
        node=NodeId("n1"),
        boot=agent.boot,
        address="::1",
        inventory=inventory(2),
    )
    gpus_swapped = encode(hello).replace(b"\xa5index\x00", b"\xa5index\x07")
    agent.connection.send(gpus_swapped)
    assert close_code(agent) == 4422


def test_logs_are_held_back_while_the_disk_is_nearly_full_and_come_afterwards(
    fresh: Head,
) -> None:
    """The agent keeps what is not acknowledged, and sends it again once there is
    room."""
    (agent,) = joined(fresh, "n1")
    job = submit(fresh, resources={"gpu": 1})
    agent.until(lambda: any(one.run for one in agent.wanted))
    chunk = LogChunk(
        job=JobId(job), attempt=AttemptNumber(1), rank=0, offset=0, data=b"printed\n"
    )
    nothing = LogChunk(
        job=JobId(job), attempt=AttemptNumber(1), rank=0, offset=0, data=b""
    )
    kept = fresh.root / "logs" / job / "1" / "rank-0.log"
    guard = fresh.app.state.house.disk
    before, guard.room = guard.room, lambda folder: Room(10**8, 10**11)
    guard.forget()
    with fresh.dial("n1", "/v1/agents/logs") as channel:
        channel.send(encode(nothing))  # how far it is kept can still be asked
        assert isinstance(
            from_head(channel.recv(PATIENCE_SECONDS, decode=False)), LogAt
        )
        channel.send(encode(chunk))
        with pytest.raises(ConnectionClosed):
            channel.recv(PATIENCE_SECONDS, decode=False)
        assert channel.close_code == 1013
    assert not kept.exists()
    guard.room = before
    guard.forget()
    with fresh.dial("n1", "/v1/agents/logs") as channel:
        channel.send(encode(chunk))
        answer = from_head(channel.recv(PATIENCE_SECONDS, decode=False))
    assert isinstance(answer, LogAt)
    assert (answer.offset, kept.read_bytes()) == (8, b"printed\n")
    agent.close()
