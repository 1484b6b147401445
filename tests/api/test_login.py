"""A browser's session: a cookie that no script reads, and that no other site's page can
use."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from corral.api.cookies import session_cookie
from corral.domain.errors import TokenExpired
from corral.domain.ids import TokenId, UserName
from corral.domain.users import Role, Token, TokenKind, User, role_of
from tests.api.heads import TOKENS, Head

OURS = {"Sec-Fetch-Site": "same-origin"}
PAGE = "Corral-Page"


def browser(head: Head, **headers: str) -> httpx2.Client:
    return httpx2.Client(
        base_url=head.url, headers=headers, timeout=20, trust_env=False
    )


@contextmanager
def logged_in(
    head: Head, who: str = "alice", **headers: str
) -> Iterator[httpx2.Client]:
    with browser(head, **headers) as made:
        answer = made.post(
            "/v1/session", headers={"Authorization": f"Bearer {TOKENS[who]}"}
        )
        assert answer.status_code == 201, answer.text
        made.headers[PAGE] = answer.json()["page_secret"]
        yield made


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_a_token_is_exchanged_for_a_cookie_that_lets_its_user_in(head: Head) -> None:
    with logged_in(head, **OURS) as one:
        (cookie,) = one.cookies.jar
        assert cookie.value != TOKENS["alice"]
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert cookie.get_nonstandard_attr("SameSite") == "strict"
        said = one.get("/v1/session").json()
        assert (said["user"], said["role"]) == ("alice", "user")
        assert one.get("/v1/status").status_code == 200
        # no more than the token may
        assert code(one.get("/v1/audit")) == (403, "forbidden")


@pytest.mark.parametrize(
    "from_where",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this host is another program
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {},
    ],
)
def test_the_cookie_counts_for_nothing_from_another_page(
    head: Head, from_where: dict[str, str]
) -> None:
    with logged_in(head) as one:
        assert code(one.get("/v1/session", headers=from_where)) == (401, "unauthorised")
        assert code(one.post("/v1/jobs", headers=from_where, json={})) == (
            401,
            "unauthorised",
        )
        assert one.get("/v1/session", headers={"Origin": head.url}).status_code == 200


def test_who_logs_out_is_let_in_no_more_by_the_same_cookie(head: Head) -> None:
    with logged_in(head, **OURS) as one:
        kept = dict(one.cookies)
        assert one.delete("/v1/session").status_code == 204
        assert not dict(one.cookies)
        with browser(head, **OURS) as other:
            other.cookies.update(kept)
            other.headers[PAGE] = one.headers[PAGE]
            assert code(other.get("/v1/session")) == (401, "token_revoked")
    with head.http("alice") as own:
        # that would end the token
        assert code(own.delete("/v1/session")) == (409, "conflict")
        assert own.get("/v1/status").status_code == 200


def test_a_link_opens_one_session_and_is_used_up(head: Head) -> None:
    with head.http("vera") as own:
        made = own.post("/v1/session/links").json()
    url, _, secret = made["url"].partition("#login=")
    assert url == f"{head.url}/"
    shown = {"Authorization": f"Bearer {secret}"}
    with browser(head, **OURS) as one:
        told = one.post("/v1/session", headers=shown).json()
        one.headers[PAGE] = told["page_secret"]
        assert (told["user"], told["role"]) == ("vera", "viewer")
        assert told["expires_at"] > made["expires_at"]  # a session outlasts its link
        assert one.get("/v1/status").status_code == 200
        assert one.post("/v1/session", headers=shown).status_code in (401, 409)


def test_a_session_ends_with_the_token_that_opened_it_at_the_latest(head: Head) -> None:
    with head.http("admin") as own:
        asked = {"user": "alice", "expires_seconds": 90.0}
        token = own.post("/v1/tokens", json=asked).json()
    shown = {"Authorization": f"Bearer {token['token']}"}
    with browser(head, **OURS) as one:
        opened = one.post("/v1/session", headers=shown).json()
        one.headers[PAGE] = opened["page_secret"]
        assert opened["expires_at"] <= token["expires_at"]
        link = one.post("/v1/session/links").json()["url"].partition("#login=")[2]
    with browser(head, **OURS) as other:
        again = other.post(
            "/v1/session", headers={"Authorization": f"Bearer {link}"}
        ).json()
        assert again["expires_at"] <= token["expires_at"]


def test_the_cookie_of_a_session_is_no_bearer_token_and_a_token_is_no_cookie(
    head: Head,
) -> None:
    with logged_in(head, **OURS) as one:
        (cookie,) = one.cookies.jar
        with browser(head, Authorization=f"Bearer {cookie.value}") as thief:
            for path in ("/v1/status", "/v1/session", "/v1/tokens"):
                assert code(thief.get(path)) == (401, "unauthorised")
            assert thief.post("/v1/session").status_code == 401
        assert cookie.name is not None
        one.cookies.clear()
        one.cookies.set(cookie.name, TOKENS["alice"])
        assert code(one.get("/v1/status")) == (401, "unauthorised")


def test_a_link_is_a_token_for_a_session_and_nothing_else(head: Head) -> None:
    with head.http("alice") as http:
        secret = http.post("/v1/session/links").json()["url"].partition("#login=")[2]
    with browser(head, Authorization=f"Bearer {secret}") as thief:
        # whose it is, before it is used
        assert thief.get("/v1/session").json()["user"] == "alice"
        for path in ("/v1/status", "/v1/jobs", "/v1/tokens"):
            assert code(thief.get(path)) == (403, "forbidden")
        assert code(thief.post("/v1/session/links")) == (403, "forbidden")
        assert thief.post("/v1/session").status_code == 201


def test_a_session_ends_by_itself_without_a_use() -> None:
    ann = User(name=UserName("ann"), role=Role.USER, created_at=0.0)
    session = Token(
        id=TokenId("t"), sha256="x", user=ann.name, role=Role.USER, created_at=100.0,
        used_at=500.0, kind=TokenKind.SESSION, idle_seconds=60.0,
    )  # fmt: skip
    assert role_of(session, ann, 559.0) == Role.USER
    with pytest.raises(TokenExpired, match="idle"):
        role_of(session, ann, 560.0)


def test_over_tls_the_cookie_is_taken_from_this_host_alone() -> None:
    assert session_cookie("ab-cd", is_tls=True) == "__Host-corral_abcd"
    assert session_cookie("ab-cd", is_tls=False) == "corral_abcd"
