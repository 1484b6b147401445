"""Rates: what one user may send, told with the numbers; agents and others are not
concerned."""

from dataclasses import replace
from pathlib import Path

import pytest

from corral.api.auth import Caller
from corral.api.errors import TooMany
from corral.api.request_rates import (
    BURST_SECONDS,
    COST_BYTES,
    COST_JOBS,
    TOKEN_SHARE,
    Rates,
)
from corral.domain.ids import NodeId, TokenId, UserName
from corral.domain.users import Role
from tests.api.heads import Agent, serving

ALICE = Caller(
    name=UserName("alice"), role=Role.USER, token=TokenId("t1"), sha256="one"
)
OTHER_TOKEN = replace(ALICE, token=TokenId("t2"), sha256="two")
BOB = replace(ALICE, name=UserName("bob"), token=TokenId("t3"), sha256="three")
NODE = replace(ALICE, role=Role.NODE, node=NodeId("n1"), sha256="four")


def sent(rates: Rates, caller: Caller, times: int) -> int:
    """How many of them were let in."""
    let_in = 0
    for _ in range(times):
        try:
            rates.check(caller)
        except TooMany:
            continue
        let_in += 1
    return let_in


def test_one_token_leaves_a_part_for_the_other_tokens_of_its_user_and_all_for_others() -> (
    None
):
    rates = Rates(user_requests=100.0, clock=lambda: 0.0)
    burst = 100 * BURST_SECONDS
    assert sent(rates, ALICE, 5000) == burst * TOKEN_SHARE
    assert sent(rates, OTHER_TOKEN, 5000) == burst * (1 - TOKEN_SHARE)
    assert sent(rates, BOB, 5000) == burst * TOKEN_SHARE
    assert sent(rates, NODE, 5000) == 5000


def test_submitting_in_a_loop_meets_no_limit() -> None:
    now = [0.0]
    rates = Rates(user_requests=200.0, clock=lambda: now[0])
    for _ in range(10_000):
        now[0] += 1 / 140
        rates.check(ALICE)


def test_what_is_large_counts_for_more() -> None:
    now = [0.0]
    rates = Rates(user_requests=10.0, clock=lambda: now[0])
    rates.charge(ALICE, COST_BYTES - 1)
    rates.check(ALICE)
    rates.charge(ALICE, 1000 * COST_BYTES)
    with pytest.raises(
        TooMany, match="7.5 requests per second on average and 75 at once"
    ) as refused:
        rates.check(ALICE)
    assert refused.value.retry_seconds <= 2 * BURST_SECONDS
    assert "--user-requests" in refused.value.hint
    now[0] += refused.value.retry_seconds
    rates.check(ALICE)


def test_jobs_of_a_submission_count_for_more() -> None:
    rates = Rates(user_requests=10.0, clock=lambda: 0.0)
    rates.charge_jobs(ALICE, COST_JOBS - 1)
    assert rates.of_user(ALICE.name).used == 0
    rates.charge_jobs(ALICE, 100 * COST_JOBS)
    with pytest.raises(TooMany, match="each 10 submitted jobs, count as one more"):
        rates.check(ALICE)
    rates.check(BOB)


def test_a_refused_dry_run_of_many_jobs_counts_too(tmp_path: Path) -> None:
    with serving(tmp_path, user_requests=10.0) as head:
        sweep = {"name": "s", "run": "x", "array": "0-4999", "queue": "nowhere"}
        with head.http("alice") as http:
            body = {"specs": [sweep], "key": "k"}
            assert http.post("/v1/jobs?dry_run=1", json=body).status_code in (400, 404)
            assert http.get("/v1/session").status_code == 429


def test_a_user_over_the_rate_is_told_when_to_come_again_and_others_go_on(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, user_requests=1.0) as head:
        with head.http("alice") as http:
            answers = [http.get("/v1/session") for _ in range(20)]
            assert answers[0].status_code == 200
            refused = next(one for one in answers if one.status_code == 429)
            assert int(refused.headers["Retry-After"]) >= 1
            error = refused.json()["error"]
            assert error["code"] == "too_many"
            assert "alice" in error["message"]
            assert error["hint"].startswith("wait ")
        with head.http("bob") as http:
            assert http.get("/v1/session").status_code == 200
        agent = Agent(head, "n1").hello()
        for _ in range(30):
            agent.beat()
        agent.close()


def test_the_page_of_a_user_has_the_rates_with_what_is_used_of_them(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, user_requests=3.0) as head:
        with head.http("alice") as http:
            before = http.get("/v1/users/alice").json()["rates"]
            # what a plan has used comes back, on a slow machine before it is read
            for _ in range(5):
                plan = http.post("/v1/plan/reliability", json={"gpus": 64, "days": 1})
                assert plan.status_code == 200, plan.text
                later = http.get("/v1/users/alice").json()["rates"]
                if later[1]["used"] > 0:
                    break
            for _ in range(4):
                http.get("/v1/queues")
            found = {
                row["name"]: row for row in http.get("/v1/users/alice").json()["rates"]
            }
            assert http.get("/v1/users/bob").status_code == 403
        assert [row["name"] for row in before] == ["requests", "plan_seconds"]
        assert before[0]["used"] == pytest.approx(1.0, abs=0.2)
        assert found["requests"]["used"] > later[0]["used"]
        assert (found["requests"]["limit"], found["requests"]["a_second"]) == (
            30.0,
            3.0,
        )
        assert 0 < later[1]["used"] < later[1]["limit"]
