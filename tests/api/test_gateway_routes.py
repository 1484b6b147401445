"""Routes for gateways elsewhere: what they get, what they send, and who may not."""

from typing import Any

import msgspec
import pytest

from corral.api.route_rights import RIGHTS, may
from corral.domain.gateway_counts import CallerCounts
from corral.domain.ids import ServiceName, UserName
from corral.domain.users import HEAD, AuditEntry, Role, Token, token_id
from corral.wire.gateway_routes import (
    VERSIONS_OF_A_TERM,
    CallerEntry,
    decode_routes,
)
from tests.api.heads import Head, eventually
from tests.control.services import counted, report, row, service, world_of

COUNTERS = "/v1/routes/counters"


def with_service(head: Head) -> None:
    """Only what a gateway needs of a world: the published routes."""
    caller = CallerEntry(name="alice/t1", key_sha256="0" * 64)
    head.control.routes.update(world_of(service(row(1))), [caller])


def test_a_gateway_gets_whole_routes_once_for_each_version(head: Head) -> None:
    with head.http("olga") as http:
        empty = decode_routes(http.get("/v1/routes").content)
        assert empty.services == ()
        assert empty.version % VERSIONS_OF_A_TERM == 0
        with_service(head)
        answer = http.get("/v1/routes")
        routes = decode_routes(answer.content)
        assert [service.name for service in routes.services] == ["chat"]
        assert answer.headers["cache-control"] == "no-store"
        again = http.get("/v1/routes", params={"known": routes.version})
        assert (again.status_code, again.content) == (204, b"")


def test_counters_of_a_gateway_are_added_once(head: Head) -> None:
    first = counted(1, tokens={"alice/t1": (10, 0, 0)})
    second = counted(2, tokens={"alice/t1": (30, 0, 0)})
    with head.http("olga") as http:
        for chat in (first, second, second):
            answer = http.post(
                COUNTERS,
                params={"gateway": "b:8480"},
                content=msgspec.json.encode(report("process-b", chat=chat)),
                headers={"Content-Type": "application/json"},
            )
            assert (answer.status_code, answer.json()) == (202, {"processes": 1})
    assert head.control.traffic.tokens_by_user("chat")["alice"].prompt == 20


def test_the_last_counters_of_an_ended_process_are_in_the_ledger_alone(
    head: Head,
) -> None:
    ended = counted(1, tokens={"zoe/t1": (10, 0, 0)})
    with head.http("olga") as http:
        for _ in range(2):
            answer = http.post(
                COUNTERS,
                params={"gateway": "ended:8480", "kept": True},
                content=msgspec.json.encode(report("process-ended", ended=ended)),
                headers={"Content-Type": "application/json"},
            )
            assert answer.status_code == 202
    traffic, key = head.control.traffic, ("process-ended", ServiceName("ended"))
    assert "olga/ended:8480" not in traffic.gateways
    assert not traffic.tokens_by_user("ended")
    traffic.tokens._committed_at = float("-inf")
    eventually(lambda: key in head.control.world.gateway_counts)
    users = head.control.world.gateway_counts[key].users
    assert users == {"zoe": CallerCounts(prompt=10)}
    days = head.run(head.store.days(first=0, last=99_999))
    assert [day.amounts.prompt_tokens for day in days if day.user == "zoe"] == [10.0]


def test_a_second_gateway_gets_its_part_of_a_limit(head: Head) -> None:
    control = head.control
    caller = CallerEntry(
        name="alice/t1", key_sha256="0" * 64, group="alice", concurrency=100
    )
    world = world_of(service(row(1)))

    async def deal() -> None:
        now = control.serving_seconds()
        control.traffic.started_gateway(now)
        control.routes.update(
            world, [caller], control.traffic.deals.deal([caller], now)
        )

    def part() -> int | None:
        with head.http("olga") as http:
            answer = http.get("/v1/routes", params={"gateway": "b"})
        return decode_routes(answer.content).callers[0].concurrency

    head.run(deal())
    assert part() == 0  # until the next deal
    head.run(deal())
    dealt = control.traffic.deals.deal([caller], control.serving_seconds())
    assert dealt.keys() >= {"own", "olga/b"}


@pytest.mark.parametrize(
    "body",
    [
        {"processes": [{"process": "p"}]},
        {"processes": [{"process": "not a name"}]},
        {"processes": [{"process": "process-1", "services": {"a\0": {}}}]},
        {"processes": "all"},
        [],
        {"bounds": {"a": [""]}},
    ],
)
def test_what_is_not_a_gateways_counters_is_refused(head: Head, body: Any) -> None:
    with head.http("olga") as http:
        answer = http.post(COUNTERS, params={"gateway": "b"}, json=body)
        assert answer.status_code == 422
        assert answer.json()["error"]["code"] == "request_invalid"
        assert "not the counters of a gateway" in answer.json()["error"]["message"]


def test_a_caller_token_calls_services_and_nothing_else(head: Head) -> None:
    with head.http("alice") as http:
        made = http.post("/v1/tokens", json={"role": "caller"})
        assert made.status_code == 201
        assert made.json()["role"] == "caller"
        assert "caller" in [
            one["role"] for one in http.get("/v1/tokens").json()["tokens"]
        ]
        for method, path in (
            ("GET", "/v1/jobs"),
            ("GET", "/v1/status"),
            ("GET", "/v1/routes"),
            ("GET", "/v1/session"),
            ("POST", "/v1/tokens"),
        ):
            headers = {"Authorization": f"Bearer {made.json()['token']}"}
            answer = http.request(method, path, headers=headers)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (403, "forbidden")
            assert "has the role caller" in error["message"]
            assert "only to call services" in error["message"]
            assert error["hint"].endswith("run: corral token create")


def test_only_routes_of_files_and_batches_are_for_callers() -> None:
    allowed = [
        key for key in RIGHTS for own in (True, False) if may(Role.CALLER, key, own=own)
    ]
    assert {path.split("/")[2] for _, path in allowed} == {"files", "batches"}


def test_no_user_has_the_role_caller(head: Head) -> None:
    with head.http("admin") as http:
        answer = http.post("/v1/users", json={"name": "carl", "role": "caller"})
        assert answer.status_code == 422


def test_a_caller_token_may_be_revoked_by_its_user(head: Head) -> None:
    digest = "ab" * 32
    token = Token(
        id=token_id(digest),
        sha256=digest,
        user=UserName("alice"),
        role=Role.CALLER,
        created_at=1.0,
    )
    entry = AuditEntry(at=1.0, by=HEAD, token=None, what="token.create", on="x")
    head.run(head.store.add_token(token, entry=entry))
    with head.http("alice") as http:
        assert http.delete(f"/v1/tokens/{token.id}").json()["state"] == "revoked"
