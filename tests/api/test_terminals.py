"""A terminal is logged in by whoever types its code in a browser, and by no link
alone."""

import html
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from corral.api import terminal_log_ins
from corral.domain.sign_on import SignOnRule
from tests import oidc
from tests.api.heads import Head
from tests.api.test_oidc import browser, come_back, head_with, rule_of

BEGIN, FETCH = "/v1/oidc/terminals", "/v1/oidc/terminals/token"
PAGE = "/v1/oidc/terminal"


@pytest.fixture
def there() -> Iterator[oidc.Provider]:
    with oidc.provider() as made:
        yield made


@pytest.fixture
def own(
    tmp_path: Path, there: oidc.Provider, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Head]:
    monkeypatch.setattr(terminal_log_ins, "POLL_BURST", 1_000)
    with head_with(tmp_path, rule_of(there)) as head:
        yield head


def terminal(head: Head) -> httpx2.Client:
    return httpx2.Client(base_url=head.url, timeout=20, trust_env=False)


def begin(head: Head) -> dict[str, Any]:
    with terminal(head) as one:
        answer = one.post(BEGIN)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def fetch(head: Head, begun: dict[str, Any]) -> httpx2.Response:
    with terminal(head) as one:
        return one.post(FETCH, json={"secret": begun["secret"]})


def asked_for_code(one: httpx2.Client, id: str) -> httpx2.Response:
    """To the provider and back, as a browser goes: the page that asks for the code."""
    off = one.get(PAGE, params={"id": id})
    assert off.status_code == 302, off.text
    back = httpx2.get(off.headers["location"], trust_env=False)
    return one.get(back.headers["location"])


def person_in(page: httpx2.Response) -> str:
    (found,) = re.findall(r'name="person" value="([^"]*)"', page.text)
    return html.unescape(found)


def typed(
    one: httpx2.Client, page: httpx2.Response, code: str, answer: str = "yes"
) -> Any:
    form = {"person": person_in(page), "code": code, "answer": answer}
    return one.post(PAGE, data=form)


def why(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_a_terminal_gets_a_token_once_its_code_is_typed_and_not_before(
    own: Head,
) -> None:
    begun = begin(own)
    assert re.fullmatch(r"[B-Z]{4}-[B-Z]{4}", begun["code"])
    assert fetch(own, begun).json()["token"] is None
    with browser(own) as one:
        page = asked_for_code(one, begun["id"])
        assert "Log in a terminal as ann" in page.text
        assert begun["code"] not in page.text, "only who sees the terminal knows it"
        assert not dict(one.cookies), "the browser itself is not logged in"
        assert fetch(own, begun).json()["token"] is None
        assert "not the code" in typed(one, page, "BBBB-BBBB").text
        assert fetch(own, begun).json()["token"] is None
        done = typed(one, page, begun["code"].lower().replace("-", " "))
        assert "logged in there" in done.text
    made = fetch(own, begun).json()
    assert (made["user"], made["role"]) == ("ann", "user")
    assert made["expires_at"] <= time.time() + 12 * 3600
    assert why(fetch(own, begun)) == (410, "log_in_expired"), "it is fetched once"
    shown = {"Authorization": f"Bearer {made['token']}"}
    with terminal(own) as one:
        assert one.get("/v1/status", headers=shown).status_code == 200
        assert one.delete(f"/v1/tokens/{made['id']}", headers=shown).status_code == 200
        assert why(one.get("/v1/status", headers=shown)) == (401, "token_revoked")
    with own.http("admin") as admin:
        entries = admin.get("/v1/audit", params={"user": "ann"}).json()["entries"]
    said = [(one["what"], one["source"]) for one in entries]
    assert said == [
        (what, "127.0.0.1") for what in ("token.revoke", "token.create", "user.add")
    ]
    assert entries[1]["detail"].startswith("corral login")


def test_a_form_of_another_page_or_of_another_log_in_lets_nobody_in(own: Head) -> None:
    begun, other = begin(own), begin(own)
    with browser(own) as one:
        page = asked_for_code(one, begun["id"])
        form = {"person": person_in(page), "code": begun["code"], "answer": "yes"}
        for site in ("cross-site", "same-site"):
            refused = one.post(PAGE, data=form, headers={"Sec-Fetch-Site": site})
            assert refused.status_code == 401
        assert typed(one, page, other["code"]).status_code == 200
        assert one.post(PAGE, data={**form, "person": "e30="}).status_code == 410
    assert fetch(own, begun).json()["token"] is None
    assert fetch(own, other).json()["token"] is None


def test_who_refuses_or_guesses_ends_the_log_in(own: Head) -> None:
    with browser(own) as one:
        denied, guessed = begin(own), begin(own)
        typed(one, asked_for_code(one, denied["id"]), "", "no")
        assert why(fetch(own, denied)) == (403, "log_in_denied")
        page = asked_for_code(one, guessed["id"])
        assert [typed(one, page, "BBBBBBBB").status_code for _ in range(5)] == [
            200
        ] * 4 + [403]
        assert typed(one, page, guessed["code"]).status_code == 403
        assert why(fetch(own, guessed)) == (403, "wrong_code")


@pytest.mark.parametrize(
    ("who", "code"),
    [
        ({"preferred_username": "eve", "groups": []}, "forbidden"),
        ({"preferred_username": "bob", "groups": ["ml-team"]}, "identity_not_linked"),
    ],
)
def test_the_terminal_is_told_why_the_provider_or_the_head_refuses(
    own: Head, there: oidc.Provider, who: dict[str, Any], code: str
) -> None:
    there.who = who
    begun = begin(own)
    with browser(own) as one:
        assert asked_for_code(one, begun["id"]).status_code == 403
    assert why(fetch(own, begun)) == (403, code)


def test_an_id_token_of_another_issuer_lets_no_terminal_in(
    own: Head, there: oidc.Provider
) -> None:
    there.wrong = {"iss": "https://evil.example"}
    begun = begin(own)
    with browser(own) as one:
        assert asked_for_code(one, begun["id"]).status_code == 401
    answer = fetch(own, begun)
    assert why(answer) == (401, "sign_on_refused")
    assert "its issuer (iss) is not" in answer.text


def test_after_ten_minutes_it_is_over(
    own: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begin(own)
    monkeypatch.setattr("corral.domain.terminal_log_in.TERMINAL_SECONDS", 0.0)
    assert why(fetch(own, begun)) == (410, "log_in_expired")
    with browser(own) as one:
        assert one.get(PAGE, params={"id": begun["id"]}).status_code == 410


def test_log_ins_are_few_from_one_address_and_polls_are_slow(
    tmp_path: Path, there: oidc.Provider
) -> None:
    with head_with(tmp_path, rule_of(there)) as head:
        begun = [begin(head) for _ in range(terminal_log_ins.BEGIN_BURST)][0]
        with terminal(head) as one:
            assert why(one.post(BEGIN)) == (429, "too_many")
            assert why(one.post(FETCH, content=b"[" * 9_000)) == (413, "too_large")
        codes = [
            fetch(head, begun).status_code
            for _ in range(terminal_log_ins.POLL_BURST + 1)
        ]
        assert codes[-1] == 429


def test_a_head_without_a_provider_says_what_lets_in(head: Head) -> None:
    with terminal(head) as one:
        answer = one.post(BEGIN)
    assert why(answer) == (404, "not_found")


def test_log_ins_by_the_provider_obey_the_quota_of_tokens(
    own: Head, there: oidc.Provider
) -> None:
    with browser(own) as one:
        assert come_back(one).status_code == 303
        begun = begin(own)
        page = asked_for_code(one, begun["id"])
        with own.http("admin") as admin:
            limits = {"limits": {"tokens": 1}}
            assert admin.patch("/v1/users/ann", json=limits).status_code == 200
        assert typed(one, page, begun["code"]).status_code == 200
        assert why(fetch(own, begun)) == (422, "over_quota")
        refused = come_back(one)
        assert (refused.status_code, "tokens" in refused.text) == (422, True)
    with own.http("admin") as admin:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            entries = admin.get("/v1/audit", params={"limit": 50}).json()["entries"]
            failed = [one for one in entries if one["what"] == "login.fail"]
            if failed:
                break
            time.sleep(0.1)
    assert {(one["code"], one["source"]) for one in failed} == {
        ("over_quota", "127.0.0.1")
    }


def test_a_disabled_user_gets_no_token_though_the_code_was_typed(own: Head) -> None:
    begun = begin(own)
    with browser(own) as one, own.http("admin") as admin:
        typed(one, asked_for_code(one, begun["id"]), begun["code"])
        assert admin.patch("/v1/users/ann", json={"disabled": True}).status_code == 200
    assert why(fetch(own, begun)) == (401, "user_disabled")


def test_a_role_by_the_groups_is_the_role_of_the_token(
    tmp_path: Path, there: oidc.Provider
) -> None:
    rule: SignOnRule = replace(rule_of(there), creates=True)
    there.who = {"preferred_username": "ann", "groups": ["ml-team", "ops"]}
    with head_with(tmp_path, rule) as head, browser(head) as one:
        begun = begin(head)
        typed(one, asked_for_code(one, begun["id"]), begun["code"])
        assert fetch(head, begun).json()["role"] == "operator"
