"""A browser's session: a cookie that no script reads, and that no other site's page can use."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.api.heads import TOKENS, Head

OURS = {"Sec-Fetch-Site": "same-origin"}


def browser(head: Head, **headers: str) -> httpx2.Client:
    return httpx2.Client(base_url=head.url, headers=headers, timeout=20, trust_env=False)


@contextmanager
def logged_in(head: Head, who: str = "alice", **headers: str) -> Iterator[httpx2.Client]:
    with browser(head, **headers) as made:
        answer = made.post("/v1/session", headers={"Authorization": f"Bearer {TOKENS[who]}"})
        assert answer.status_code == 201, answer.text
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
        assert code(one.get("/v1/audit")) == (403, "forbidden")  # no more than the token may


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
        assert code(one.post("/v1/jobs", headers=from_where, json={})) == (401, "unauthorised")
        assert one.get("/v1/session", headers={"Origin": head.url}).status_code == 200


def test_who_logs_out_is_let_in_no_more_by_the_same_cookie(head: Head) -> None:
    with logged_in(head, **OURS) as one:
        kept = dict(one.cookies)
        assert one.delete("/v1/session").status_code == 204
        assert not dict(one.cookies)
        with browser(head, **OURS) as other:
            other.cookies.update(kept)
            assert code(other.get("/v1/session")) == (401, "token_revoked")
    with head.http("alice") as own:
        assert code(own.delete("/v1/session")) == (409, "conflict")  # that would end the token
        assert own.get("/v1/status").status_code == 200


def test_a_link_opens_one_session_and_is_used_up(head: Head) -> None:
    with head.http("vera") as own:
        made = own.post("/v1/session/links").json()
    url, _, secret = made["url"].partition("#login=")
    assert url == f"{head.url}/"
    shown = {"Authorization": f"Bearer {secret}"}
    with browser(head, **OURS) as one:
        told = one.post("/v1/session", headers=shown).json()
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
        assert opened["expires_at"] <= token["expires_at"]
        link = one.post("/v1/session/links").json()["url"].partition("#login=")[2]
    with browser(head, **OURS) as other:
        again = other.post("/v1/session", headers={"Authorization": f"Bearer {link}"}).json()
        assert again["expires_at"] <= token["expires_at"]
