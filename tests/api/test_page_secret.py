"""A stolen cookie lets nobody in, and a session ends with the right that it came
from."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.api.heads import Head, serving
from tests.api.test_login import OURS, PAGE, browser, code, logged_in


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path) as head:
        yield head


def test_a_cookie_alone_lets_nobody_in_whatever_headers_come_with_it(own: Head) -> None:
    with logged_in(own, **OURS) as one, logged_in(own, **OURS) as another:
        secret, of_another = one.headers.pop(PAGE), another.headers[PAGE]
        forged = [
            OURS,
            {"Origin": own.url},
            {**OURS, PAGE: ""},
            {**OURS, PAGE: of_another},
        ]
        for headers in forged:
            assert code(one.get("/v1/status", headers=headers)) == (401, "unauthorised")
            assert code(one.post("/v1/session", headers=headers)) == (
                401,
                "unauthorised",
            )
        for path in ("/v1/session", "/v1/events?follow=1", "/metrics"):
            assert code(one.get(path)) == (401, "unauthorised")
        assert code(one.post("/v1/session/links")) == (401, "unauthorised")
        assert code(one.delete("/v1/session")) == (401, "unauthorised")
        answer = one.get("/v1/session", headers={PAGE: secret})
        assert answer.status_code == 200
        assert secret not in answer.text, (
            "it is answered once, when the session is opened"
        )


def test_a_session_from_before_there_were_two_secrets_is_over(own: Head) -> None:
    with logged_in(own, **OURS) as one:
        tokens = own.control.store._tokens  # type: ignore[attr-defined]
        id = next(id for id, token in tokens.items() if token.page_sha256 is not None)
        tokens[id] = replace(tokens[id], page_sha256=None)
        assert code(one.get("/v1/session")) == (401, "unauthorised")


@pytest.mark.parametrize("change", [{"role": "viewer"}, {"disabled": True}])
def test_another_role_and_a_standing_end_the_sessions_of_a_user_for_good(
    own: Head, change: dict[str, Any]
) -> None:
    with own.http("alice") as http:
        link = http.post("/v1/session/links").json()["url"].partition("#login=")[2]
    with logged_in(own, **OURS) as one, own.http("admin") as admin:
        assert (
            admin.patch("/v1/users/alice", json={"limits": {"jobs": 5}}).status_code
            == 200
        )
        assert one.get("/v1/status").status_code == 200, "a quota ends nothing"
        assert admin.patch("/v1/users/alice", json=change).status_code == 200
        assert code(one.get("/v1/status")) == (401, "token_revoked")
        back = {"role": "user", "disabled": False}
        assert admin.patch("/v1/users/alice", json=back).status_code == 200
        assert code(one.get("/v1/status")) == (401, "token_revoked")
        shown = {"Authorization": f"Bearer {link}"}
        assert code(one.post("/v1/session", headers=shown)) == (401, "token_revoked")
    with own.http("alice") as http:
        assert http.get("/v1/status").status_code == 200, "tokens of programs go on"


def test_a_removed_user_has_no_session(own: Head) -> None:
    with logged_in(own, **OURS) as one, own.http("admin") as admin:
        assert admin.delete("/v1/users/alice").status_code == 200
        assert code(one.get("/v1/status")) == (401, "token_revoked")


def test_a_revoked_token_ends_the_sessions_that_came_from_it_and_no_others(
    own: Head,
) -> None:
    with own.http("alice") as http, logged_in(own, **OURS) as other:
        made = http.post("/v1/tokens", json={}).json()
        shown = {"Authorization": f"Bearer {made['token']}"}
        with browser(own, **OURS) as first, browser(own, **OURS) as second:
            first.headers[PAGE] = first.post("/v1/session", headers=shown).json()[
                "page_secret"
            ]
            link = first.post("/v1/session/links").json()["url"].partition("#login=")[2]
            by_link = {"Authorization": f"Bearer {link}"}
            second.headers[PAGE] = second.post("/v1/session", headers=by_link).json()[
                "page_secret"
            ]
            assert second.get("/v1/status").status_code == 200
            assert http.delete(f"/v1/tokens/{made['id']}").status_code == 200
            assert code(first.get("/v1/status")) == (401, "token_revoked")
            assert code(second.get("/v1/status")) == (401, "token_revoked")
        assert other.get("/v1/status").status_code == 200


@pytest.fixture
def looked_at(own: Head) -> Iterator[Head]:
    """A head where the tokens of open connections are looked at after each revocation,
    before the request that revoked one goes on."""
    looks = 0
    look, revoke = own.store.identities, own.store.revoke_token

    async def identities(digests: Any) -> Any:
        nonlocal looks
        found = await look(digests)
        looks += 1
        return found

    async def revoke_token(*args: Any, **how: Any) -> Any:
        revoked = await revoke(*args, **how)
        last = looks + 2  # one may have begun before
        while looks < last:
            await asyncio.sleep(0.001)
        return revoked

    with (
        mock.patch("corral.api.sessions.LOOK_SECONDS", 0.001),
        mock.patch.object(own.store, "identities", identities),
        mock.patch.object(own.store, "revoke_token", revoke_token),
        own.http("bob") as bob,
        bob.stream("GET", "/v1/events?follow=1"),  # it has tokens looked at
    ):
        yield own


def test_a_request_that_ends_its_own_token_is_answered_with_what_it_did(
    looked_at: Head,
) -> None:
    with looked_at.http("alice") as http:
        link = http.post("/v1/session/links").json()["url"].partition("#login=")[2]
        mine = http.post("/v1/tokens", json={}).json()
    with browser(looked_at, **OURS) as one:
        opened = one.post("/v1/session", headers={"Authorization": f"Bearer {link}"})
        assert opened.status_code == 201, opened.text
        one.headers[PAGE] = opened.json()["page_secret"]
        assert one.get("/v1/session").status_code == 200
        assert one.delete("/v1/session").status_code == 204
    shown = {"Authorization": f"Bearer {mine['token']}"}
    with browser(looked_at, **shown) as http:
        revoked = http.delete(f"/v1/tokens/{mine['id']}")
        assert revoked.status_code == 200, revoked.text
        assert code(http.get("/v1/status")) == (401, "token_revoked")
