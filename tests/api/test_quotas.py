"""Quotas of users, the reserve of the head's disk, and the range of priorities."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx2
import pytest

from corral.api.disk_reserve import Room
from corral.control.services.token_budgets import month_of
from corral.domain.ids import QueueName, UserName
from corral.domain.ledger import UsageAmounts, UsageRecord, day_of
from corral.domain.world import Changes
from tests.api.heads import Head, serving

BIG = 10**9


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    with serving(tmp_path_factory.mktemp("quotas")) as head:
        yield head


def spec(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "run": "true", **more}


def submit(
    http: httpx2.Client, *specs: dict[str, Any], dry: bool = False
) -> httpx2.Response:
    body = {"specs": list(specs), "key": token_hex(8)}
    return http.post("/v1/jobs" + "?dry_run=1" * dry, json=body)


def limit(head: Head, user: str, **limits: int | str | None) -> None:
    with head.http() as http:
        answer = http.patch(f"/v1/users/{user}", json={"limits": limits})
        assert answer.status_code == 200, answer.text


def error(answer: httpx2.Response) -> dict[str, str]:
    found: dict[str, str] = answer.json()["error"]
    return found


def rows(head: Head, who: str, user: str) -> dict[str, dict[str, Any]]:
    with head.http(who) as http:
        found = http.get(f"/v1/users/{user}").json()["quotas"]
    return {row["name"]: row for row in found}


def test_unfinished_jobs_are_bounded_with_numbers_and_the_next_command(
    head: Head,
) -> None:
    limit(head, "alice", jobs=3)
    with head.http("alice") as http:
        assert submit(http, spec("a"), spec("b")).status_code == 201
        refused = submit(http, spec("c", array="0-1"))
        assert refused.status_code == 422
        told = error(refused)
        assert told["code"] == "over_quota"
        assert told["message"] == (
            "alice may have at most 3 unfinished jobs; 2 are in use, and this request "
            "needs 2 more"
        )
        assert "corral ps" in told["hint"]
        assert "corral user set alice --max-jobs 4" in told["hint"]
        assert submit(http, spec("c", array="0-1"), dry=True).status_code == 422
        assert submit(http, spec("c")).status_code == 201
        assert submit(http, spec("d")).status_code == 422
        assert http.post("/v1/jobs/c/cancel").status_code == 202
        assert submit(http, spec("d")).status_code == 201
    with head.http("bob") as http:
        assert submit(http, spec("other")).status_code == 201
    row = rows(head, "alice", "alice")["jobs"]
    assert (row["used"], row["limit"], row["set_by"]) == (3, 3, "user")
    limit(head, "alice", jobs=None)
    assert rows(head, "alice", "alice")["jobs"]["set_by"] == "default"


def test_an_array_and_the_bytes_of_stored_specs_are_bounded(head: Head) -> None:
    limit(head, "bob", array=5, spec_bytes="20kB")
    with head.http("bob") as http:
        refused = error(submit(http, spec("sweep", array="0-5")))
        assert "5 jobs of one array" in refused["message"]
        large = {"V": "x" * 15_000}
        assert submit(http, spec("one", env=large, array="0-4")).status_code == 201
        used = rows(head, "bob", "bob")["spec_bytes"]["used"]
        assert 15_000 < used < 16_000  # once, for five jobs
        refused = error(submit(http, spec("two", env=large)))
        assert refused["code"] == "over_quota"
        assert "20 kB of stored specs" in refused["message"]
        assert submit(http, spec("small")).status_code == 201


def test_uploads_are_bounded_audited_and_counted_once(head: Head) -> None:
    limit(head, "alice", upload_bytes=25_000)
    contents = [bytes([number]) * 10_000 for number in range(3)]
    digests = [hashlib.sha256(one).hexdigest() for one in contents]
    with head.http("alice") as http:
        for _ in range(2):
            for digest, content in zip(digests[:2], contents[:2], strict=True):
                assert (
                    http.put(f"/v1/snapshots/{digest}", content=content).status_code
                    == 200
                )
        refused = http.put(f"/v1/snapshots/{digests[2]}", content=contents[2])
        assert refused.status_code == 422
        assert (
            "25 kB of uploaded workdirs; 20 kB are in use" in error(refused)["message"]
        )
        pieces = (contents[2][at : at + 1000] for at in range(0, 10_000, 1000))
        assert (
            http.put(f"/v1/snapshots/{digests[2]}", content=pieces).status_code == 413
        )
    with head.http() as http:
        entries = http.get("/v1/audit?user=alice").json()["entries"]
    uploads = [one for one in entries if one["what"] == "workdir.upload"]
    assert [one["accepted"] for one in uploads].count(True) == 2
    assert {one["on"] for one in uploads if one["accepted"]} == set(digests[:2])
    assert any(not one["accepted"] for one in uploads)


def test_secrets_and_tokens_are_bounded(head: Head) -> None:
    limit(head, "alice", secrets=1, secret_bytes=100, tokens=2)
    with head.http("alice") as http:
        assert http.put("/v1/secrets/A", json={"value": "x" * 50}).status_code == 204
        assert http.put("/v1/secrets/A", json={"value": "y" * 60}).status_code == 204
        assert (
            error(http.put("/v1/secrets/B", json={"value": "x"}))["code"]
            == "over_quota"
        )
        assert (
            error(http.put("/v1/secrets/A", json={"value": "x" * 200}))["code"]
            == "over_quota"
        )
        assert http.post("/v1/tokens", json={}).status_code == 201
        refused = error(http.post("/v1/tokens", json={}))
        assert "2 valid tokens; 2 are in use" in refused["message"]
        assert "corral token revoke" in refused["hint"]


def test_the_tokens_of_this_month_are_shown_with_their_limit(head: Head) -> None:
    limit(head, "alice", tokens_per_month=1000)
    now = head.control.now().wall
    began_at, _ = month_of(now)
    amounts = UsageAmounts(prompt_tokens=30, output_tokens=12)
    records = tuple(
        UsageRecord(
            day=day,
            queue=QueueName("default"),
            user=UserName(user),
            gpu_type="",
            amounts=amounts,
        )
        for day, user in (
            (day_of(now), "alice"),
            (day_of(began_at) - 1, "alice"),
            (day_of(now), "bob"),
        )
    )
    head.run(head.store.commit(head.control.world.term, Changes(accounts=records)))
    row = rows(head, "alice", "alice")["tokens_per_month"]
    assert (row["used"], row["limit"], row["set_by"]) == (42, 1000, "user")


def test_a_link_that_meets_a_full_quota_is_not_used_up(head: Head) -> None:
    limit(head, "alice", tokens=None)
    with head.http("alice") as http:
        held = rows(head, "alice", "alice")["tokens"]["used"]
        secret = http.post("/v1/session/links").json()["url"].partition("#login=")[2]
        made = http.post("/v1/tokens", json={}).json()
        limit(head, "alice", tokens=held + 1)
        with httpx2.Client(base_url=head.url, timeout=20, trust_env=False) as browser:
            shown = {"Authorization": f"Bearer {secret}"}
            refused = error(browser.post("/v1/session", headers=shown))
            assert refused["code"] == "over_quota", refused
            assert http.delete(f"/v1/tokens/{made['id']}").status_code == 200
            assert browser.post("/v1/session", headers=shown).status_code == 201
            assert rows(head, "alice", "alice")["tokens"]["used"] == held + 1


def test_limits_are_set_by_admins_within_bounds_and_seen_by_their_user(
    head: Head,
) -> None:
    with head.http("alice") as http:
        assert (
            http.patch("/v1/users/alice", json={"limits": {"jobs": 9}}).status_code
            == 403
        )
        assert http.get("/v1/users/bob").status_code == 403
    assert "jobs" in rows(head, "olga", "bob")
    with head.http() as http:
        for wrong in ({"joobs": 1}, {"jobs": -1}, {"jobs": 10**9}, {"jobs": "many"}):
            assert (
                http.patch("/v1/users/bob", json={"limits": wrong}).status_code == 400
            )
        assert (
            http.patch("/v1/users/admin", json={"limits": {"jobs": 9_000}}).status_code
            == 200
        )
        assert (
            http.patch("/v1/users/admin", json={"limits": {"jobs": None}}).status_code
            == 200
        )
    assert rows(head, "admin", "admin")["jobs"]["limit"] == 100_000


def test_a_disk_without_room_refuses_what_is_large_and_nothing_else(head: Head) -> None:
    guard = head.app.state.house.disk
    before, guard.room = guard.room, lambda folder: Room(BIG // 2, 100 * BIG)
    guard.forget()
    content = b"z" * 5_000
    try:
        with head.http("olga") as http:
            put = http.put(
                f"/v1/snapshots/{hashlib.sha256(content).hexdigest()}", content=content
            )
            assert put.status_code == 507
            assert error(put)["code"] == "disk_low"
            assert (
                "500 MB of 100 GB are free, and 2 GB are reserved"
                in error(put)["message"]
            )
            large = submit(http, spec("large", env={"V": "x" * 90_000}))
            assert large.status_code == 507
            assert submit(http, spec("low")).status_code == 201
            assert http.post("/v1/jobs/low/cancel").status_code == 202
            warnings = http.get("/v1/status").json()["warnings"]
            assert any("nearly full" in warning["text"] for warning in warnings)
    finally:
        guard.room = before
        guard.forget()


def test_a_priority_above_the_ordinary_range_is_for_operators(head: Head) -> None:
    with head.http("bob") as http:
        assert submit(http, spec("fine", priority=100)).status_code == 201
        refused = submit(http, spec("first", priority=10_000))
        assert refused.status_code == 403
        told = error(refused)
        assert (
            "asks for priority 10,000; in queue default users may ask for at most high (100)"
            in told["message"]
        )
        assert "write: priority: high" in told["hint"]
    with head.http("olga") as http:
        assert submit(http, spec("first", priority=10_000)).status_code == 201
        fields = {"priorities": ["low", 5_000]}
        assert (
            http.put("/v1/queues/default", json={"fields": fields}).status_code == 200
        )
    with head.http("bob") as http:
        assert submit(http, spec("second", priority=5_000)).status_code == 201
        assert submit(http, spec("third", priority=5_001)).status_code in (403, 422)


def test_the_reserve_is_a_part_of_the_disk_and_at_least_a_gigabyte(
    tmp_path: Path,
) -> None:
    from corral.api.disk_reserve import DiskGuard

    guard = DiskGuard(reserve_bytes=None, monotonic=lambda: 0.0)
    assert guard.reserve(Room(0, 10 * BIG)) == BIG
    assert guard.reserve(Room(0, 500 * BIG)) == 10 * BIG
    assert guard.look(tmp_path / "not" / "there").total > 0


def test_a_wrong_limit_of_a_user_is_refused_with_the_option_that_sets_it(
    head: Head,
) -> None:
    with head.http() as http:
        for wrong in ("many", -1):
            answer = http.patch("/v1/users/alice", json={"limits": {"jobs": wrong}})
            assert answer.status_code == 400
            assert error(answer)["hint"] == "for example: --max-jobs 20000"


def test_limits_of_calls_to_services_are_none_until_they_are_set(head: Head) -> None:
    names = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
    before = rows(head, "bob", "bob")
    assert [(before[name]["limit"], before[name]["set_by"]) for name in names] == [
        (None, "default")
    ] * 3
    limit(head, "bob", requests_per_minute=600, concurrent_requests="4")
    after = rows(head, "bob", "bob")
    assert [after[name]["limit"] for name in names] == [600, None, 4]
    assert after["requests_per_minute"]["set_by"] == "user"
    with head.http() as http:
        body = {"limits": {"tokens_per_minute": 0}}
        refused = http.patch("/v1/users/bob", json=body)
    assert refused.status_code == 400, refused.text
    assert "it must be from 1 to" in error(refused)["message"]
    assert "--max-tokens-per-minute 600" in error(refused)["hint"]
    limit(head, "bob", requests_per_minute=None, concurrent_requests=None)
    assert rows(head, "bob", "bob")["requests_per_minute"]["limit"] is None
