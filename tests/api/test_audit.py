"""What the audit log has of log-ins that fail, of reads of secrets and logs, and of
terminals."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import InvalidStatus

from corral.api.failed_log_ins import ENTRIES_MOST, KINDS_MOST, FailedLogIns
from corral.domain.errors import StoreTrouble
from corral.domain.users import AuditEntry
from corral.store.memory_store import MemoryStore
from tests.api.heads import TOKENS, Agent, Head, RealClock, eventually, serving, up
from tests.api.test_agents import submit


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path) as head:
        yield head


def entries(head: Head, what: str) -> list[dict[str, Any]]:
    """The oldest first."""
    with head.http() as http:
        found = http.get("/v1/audit", params={"after": 0}).json()["entries"]
    return [one for one in found if one["what"] == what]


@pytest.fixture
def running(fresh: Head) -> Iterator[tuple[Head, str]]:
    """A job of admin's with a secret, on n1."""
    agent = Agent(fresh, "n1").hello()
    agent.beat()
    with fresh.http() as http:
        assert (
            http.put("/v1/secrets/HF_TOKEN", json={"value": "canary-9"}).status_code
            == 204
        )
    job = submit(fresh, secrets=["HF_TOKEN"], resources={"gpu": 1})
    agent.until(lambda: any(one.run for one in agent.wanted))
    agent.beat(up((job, 1)))
    yield fresh, job
    agent.close()


def test_a_node_that_reads_secrets_is_told_apart_from_a_user_of_its_name(
    running: tuple[Head, str],
) -> None:
    head, job = running
    with head.http() as http, head.http("n1") as node, head.http("n2") as other:
        http.post("/v1/users", json={"name": "n1"})
        token = http.post("/v1/tokens", json={"user": "n1"}).json()["token"]
        assert node.get(f"/v1/agents/secrets/{job}/1").json()["secrets"]
        assert other.get(f"/v1/agents/secrets/{job}/1").status_code == 403
        with httpx2.Client(base_url=head.url, trust_env=False) as user:
            user.headers["Authorization"] = f"Bearer {token}"
            assert user.get(f"/v1/agents/secrets/{job}/1").status_code == 403
    read, refused, asked = entries(head, "secret.read")
    assert (read["by"], read["kind"], read["on"]) == ("n1", "node", f"{job}.1")
    assert (read["accepted"], read["source"]) == (True, "127.0.0.1")
    assert read["detail"] == "HF_TOKEN of admin"
    assert (refused["by"], refused["kind"], refused["code"]) == (
        "n2",
        "node",
        "forbidden",
    )
    assert (asked["by"], asked["kind"], asked["code"]) == ("n1", "user", "forbidden")


def test_secrets_are_not_handed_out_when_the_read_cannot_be_written_down(
    running: tuple[Head, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head, job = running

    async def full(entry: AuditEntry) -> None:
        raise StoreTrouble("the disk is full")

    monkeypatch.setattr(head.store, "record", full)
    with head.http("n1") as node, head.http("olga") as olga:
        answer = node.get(f"/v1/agents/secrets/{job}/1")
        assert (answer.status_code, "canary" in answer.text) == (503, False)
        assert olga.get(f"/v1/jobs/{job}/logs").status_code == 503


def test_reads_of_anothers_log_are_noted_once_in_a_while_and_refusals_each_time(
    running: tuple[Head, str],
) -> None:
    head, job = running
    with (
        head.http("admin") as owner,
        head.http("olga") as olga,
        head.http("bob") as bob,
    ):
        for _ in range(3):
            assert owner.get(f"/v1/jobs/{job}/logs").status_code == 200
            assert olga.get(f"/v1/jobs/{job}/logs").status_code == 200
        assert bob.get(f"/v1/jobs/{job}/logs").status_code == 403
    read, refused = entries(head, "log.read")
    assert (read["by"], read["on"], read["detail"]) == ("olga", job, "of admin")
    assert (refused["by"], refused["accepted"], refused["code"]) == (
        "bob",
        False,
        "forbidden",
    )


def test_the_command_of_a_terminal_is_in_the_log(
    running: tuple[Head, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head, job = running
    monkeypatch.setattr("corral.api.agent_sessions.AGENT_SECONDS", 0.01)
    for query in ("?command=cat+/etc/passwd", "?shell=false", ""):
        with (
            pytest.raises(InvalidStatus),
            head.dial("admin", f"/v1/jobs/{job}/attach{query}"),
        ):
            pass
    opened = [one["detail"] for one in entries(head, "job.attach") if one["accepted"]]
    assert opened == [
        "rank 0: cat /etc/passwd",
        "rank 0: the output",
        "rank 0: a shell",
    ]


def test_failed_log_ins_are_summed_with_their_address_and_what_is_known(
    fresh: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.api.failed_log_ins.FIRST_SECONDS", 0.05)
    with httpx2.Client(base_url=fresh.url, trust_env=False) as nobody:
        for token in (
            "no-such-token-0123456789",
            TOKENS["gone"],
            "no-such-token-0123456789",
        ):
            answer = nobody.get(
                "/v1/jobs", headers={"Authorization": f"Bearer {token}"}
            )
            assert answer.status_code == 401
    eventually(lambda: sum(one["count"] for one in entries(fresh, "login.fail")) == 3)
    found = {one["code"]: one for one in entries(fresh, "login.fail")}
    assert found["unauthorised"]["count"] == 2
    revoked = found["token_revoked"]
    assert (revoked["by"], revoked["kind"]) == ("(nobody)", "nobody")
    assert (revoked["source"], revoked["on"].endswith(" of gone")) == (
        "127.0.0.1",
        True,
    )
    assert "no-such-token" not in str(found)


def test_a_flood_of_failures_is_a_few_entries() -> None:
    async def flood() -> None:
        store = MemoryStore()
        failed = FailedLogIns(store=store, clock=RealClock())
        for number in range(KINDS_MOST + 5_000):
            failed.note(f"10.0.{number // 250}.{number % 250}", "unauthorised")
        failed.note("192.0.2.1", "unauthorised")
        await failed.write()
        found = await store.audit(limit=1_000)
        assert len(found) <= ENTRIES_MOST + 1
        assert sum(one.count for one in found) == KINDS_MOST + 5_001
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run(flood())


def test_the_log_is_read_the_oldest_first_after_a_number(fresh: Head) -> None:
    with fresh.http() as http:
        first = http.get("/v1/audit", params={"after": 0, "limit": 3}).json()["entries"]
        then = http.get("/v1/audit", params={"after": 3, "limit": 1}).json()["entries"]
    assert [one["number"] for one in first + then] == [1, 2, 3, 4]
    assert len({one["link"] for one in first + then}) == 4
