"""Log-in by an OpenID Connect provider, over real HTTP: who is let in, and who is not
and why."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from corral.api import ApiSettings
from corral.boot.oidc_provider import Provider as Ours
from corral.domain.errors import SpecInvalid
from corral.domain.sign_on import SignOnRule
from corral.domain.users import Role
from tests import oidc
from tests.api.heads import Head, RealClock
from tests.api.test_login import OURS, PAGE

ROLES = (("ml-team", Role.USER), ("ops", Role.OPERATOR), ("lead", Role.ADMIN))


class WithProvider(Head):
    rule: SignOnRule

    def _app(self, settings: ApiSettings) -> Any:
        sign_on = Ours(self.rule, oidc.SECRET, RealClock())
        return super()._app(replace(settings, sign_on=sign_on))


def rule_of(there: oidc.Provider, **more: Any) -> SignOnRule:
    words = {"issuer": there.url, "client_id": oidc.CLIENT, "roles": ROLES, **more}
    return SignOnRule(**words)


@contextmanager
def head_with(root: Path, rule: SignOnRule) -> Iterator[Head]:
    head = WithProvider(root)
    head.rule = rule
    head.start()
    yield head
    head.close()


@pytest.fixture
def there() -> Iterator[oidc.Provider]:
    with oidc.provider() as made:
        yield made


@pytest.fixture
def own(tmp_path: Path, there: oidc.Provider) -> Iterator[Head]:
    with head_with(tmp_path, rule_of(there)) as head:
        yield head


@contextmanager
def browser(head: Head) -> Iterator[httpx2.Client]:
    with httpx2.Client(
        base_url=head.url, headers=OURS, timeout=20, trust_env=False
    ) as made:
        yield made


def come_back(one: httpx2.Client, to: str = "/jobs") -> httpx2.Response:
    """To the provider and back: what this head says then."""
    off = one.get("/v1/oidc/start", params={"to": to})
    assert off.status_code == 302, off.text
    back = httpx2.get(off.headers["location"], trust_env=False)
    return arrived(one, back.headers["location"])


def arrived(one: httpx2.Client, back: str) -> httpx2.Response:
    """What this head says, and the page's secret taken from the address as the page
    does it."""
    answer = one.get(back)
    place, found, secret = answer.headers.get("location", "").partition("#session=")
    if found:
        one.headers[PAGE] = secret
        answer.headers["location"] = place
    return answer


def link(admin: httpx2.Client, user: str, there: oidc.Provider, subject: str) -> None:
    body = {"issuer": there.url, "subject": subject}
    answer = admin.put(f"/v1/users/{user}/identity", json=body)
    assert answer.status_code == 200, answer.text


def test_who_has_a_role_at_the_provider_is_let_in_by_a_cookie_of_their_own(
    own: Head,
) -> None:
    with browser(own) as one:
        assert one.get("/v1/oidc").json() == {"provider": "127.0.0.1"}
        answer = come_back(one)
        assert (answer.status_code, answer.headers["location"]) == (303, "/jobs"), (
            answer.text
        )
        (cookie,) = one.cookies.jar  # that of the way there is gone
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert cookie.get_nonstandard_attr("SameSite") == "strict"
        said = one.get("/v1/session").json()
        assert (said["user"], said["role"]) == ("ann", "user")
        assert said["expires_at"] <= time.time() + 12 * 3600
        assert one.delete("/v1/session").status_code == 204
        assert one.get("/v1/session").status_code == 401
    with own.http("admin") as admin:
        assert [
            one["role"]
            for one in admin.get("/v1/users").json()["users"]
            if one["name"] == "ann"
        ]
        entries = admin.get("/v1/audit", params={"user": "ann"}).json()["entries"]
        assert [one["what"] for one in entries] == [
            "session.close",
            "session.open",
            "user.add",
        ]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"nonce": "of-another"}, "another log-in"),
        ({"nonce": None}, "another log-in"),
        ({"aud": "another"}, "audience"),
        ({"aud": ["another", oidc.CLIENT], "azp": "another"}, "authorized party"),
        ({"iss": "https://evil.example"}, "its issuer (iss) is not"),
        ({"exp": 1_700_000_000}, "expired"),
        ({"exp": None}, "no valid issue time"),
        ({"exp": True}, "no valid issue time"),
        ({"iat": 9_000_000_000}, "not valid yet"),
        ({"nbf": 9_000_000_000}, "not valid yet"),
    ],
)
def test_an_id_token_that_says_the_wrong_thing_lets_nobody_in(
    own: Head, there: oidc.Provider, wrong: dict[str, Any], why: str
) -> None:
    there.wrong = wrong
    with browser(own) as one:
        answer = come_back(one)
        assert answer.status_code == 401
        assert why in answer.text
        assert not dict(one.cookies)
        assert "script-src" not in answer.headers["content-security-policy"]


def test_clocks_may_differ_by_less_than_a_minute(
    own: Head, there: oidc.Provider
) -> None:
    there.wrong = {"exp": time.time() - 40, "iat": time.time() + 40}
    with browser(own) as one:
        assert come_back(one).status_code == 303


@pytest.mark.parametrize("signed", ["none", "HS256"])
def test_what_no_private_key_has_signed_is_not_believed(
    own: Head, there: oidc.Provider, signed: str
) -> None:
    there.signed = signed
    with browser(own) as one:
        answer = come_back(one)
        assert answer.status_code == 401
        assert "ID token is not valid" in answer.text


def test_a_key_of_another_under_a_known_name_is_not_believed(
    own: Head, there: oidc.Provider
) -> None:
    there.published = there.key
    there.rotate()
    with browser(own) as one:
        assert come_back(one).status_code == 401


def test_a_provider_may_change_its_key(
    own: Head, there: oidc.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with browser(own) as one:
        assert come_back(one).status_code == 303
        there.rotate()
        assert come_back(one).status_code == 401, "it has just looked"
        monkeypatch.setattr("corral.boot.oidc_provider.KEYS_SECONDS", 0.0)
        assert come_back(one).status_code == 303
    assert there.asked.count("/.well-known/openid-configuration") == 1


def test_only_the_browser_that_set_out_comes_back_and_only_once(
    own: Head, there: oidc.Provider
) -> None:
    with browser(own) as one, browser(own) as other:
        off = one.get("/v1/oidc/start").headers["location"]
        back = httpx2.get(off, trust_env=False).headers["location"]
        assert "has started no log-in here" in other.get(back).text
        assert not dict(other.cookies)
        other.get("/v1/oidc/start")
        mixed = other.get(back)
        assert mixed.status_code == 401
        assert "another or an expired log-in" in mixed.text
        begun = dict(one.cookies)
        assert one.get(back).status_code == 303
        with browser(own) as late:
            late.cookies.update(begun)
            again = late.get(back)
            assert (again.status_code, "invalid_grant" in again.text) == (401, True)


def test_after_ten_minutes_a_log_in_is_to_be_begun_anew(
    own: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.api.oidc.BEGUN_SECONDS", -1)
    with browser(own) as one:
        off = one.get("/v1/oidc/start")
        (cookie,) = off.headers.get_list("set-cookie")
        one.cookies.update(
            {
                cookie.partition("=")[0]: cookie.partition("=")[2]
                .partition(";")[0]
                .strip('"')
            }
        )
        back = httpx2.get(off.headers["location"], trust_env=False).headers["location"]
        answer = one.get(back)
        assert answer.status_code == 401
        assert "another or an expired" in answer.text or "no log-in here" in answer.text


def test_who_has_no_role_is_told_so_and_no_user_is_made(
    own: Head, there: oidc.Provider
) -> None:
    for groups in (["others"], [], None, {"ml-team": 1}, 7):
        there.who = {"preferred_username": "eve", "groups": groups}
        with browser(own) as one:
            answer = come_back(one)
            assert (answer.status_code, "has a role" in answer.text) == (403, True)
    with own.http("admin") as admin:
        assert "eve" not in {
            one["name"] for one in admin.get("/v1/users").json()["users"]
        }


def test_the_highest_of_the_groups_counts_each_time_and_an_admin_stays_one(
    own: Head, there: oidc.Provider
) -> None:
    def role_after(groups: list[str], name: str = "ann") -> tuple[str, str]:
        there.who = {"preferred_username": name, "groups": groups}
        with browser(own) as one, own.http("admin") as admin:
            assert come_back(one).status_code == 303
            of_user = admin.get(f"/v1/users/{name}").json()["role"]
            return one.get("/v1/session").json()["role"], of_user

    assert role_after(["ml-team", "ops"]) == ("operator", "operator")
    assert role_after(["ml-team"]) == ("user", "user")
    with own.http("admin") as admin:
        link(admin, "admin", there, "u-admin")
    assert role_after(["ml-team"], "admin") == ("user", "admin")


def test_a_disabled_user_is_not_let_in(own: Head, there: oidc.Provider) -> None:
    there.who = {"preferred_username": "bob", "groups": ["ml-team"]}
    with own.http("admin") as admin, browser(own) as one:
        link(admin, "bob", there, "u-bob")
        assert admin.patch("/v1/users/bob", json={"disabled": True}).status_code == 200
        answer = come_back(one)
        assert (answer.status_code, "bob is disabled" in answer.text) == (401, True)


@pytest.mark.parametrize(
    ("who", "why"),
    [
        ({"email": "ann@x.org"}, "not verified"),
        ({"email": "ann@x.org", "email_verified": "true"}, "not verified"),
        ({"email": "ann@y.org", "email_verified": True}, "not in the e-mail domain"),
        ({"email": "<b>@x.org", "email_verified": True}, "not a valid user name"),
        ({"groups": ["ml-team"]}, "no claim email"),
    ],
)
def test_addresses_name_users_only_where_they_are_verified_and_of_the_domain(
    tmp_path: Path, there: oidc.Provider, who: dict[str, Any], why: str
) -> None:
    rule = rule_of(
        there, user_claim="email", domain="x.org", roles=(("*", Role.VIEWER),)
    )
    with head_with(tmp_path, rule) as head, browser(head) as one:
        there.who = who
        answer = come_back(one)
        assert (answer.status_code, why in answer.text, "<b>" in answer.text) == (
            403,
            True,
            False,
        )
        there.who = {"email": "Ann.B@X.org", "email_verified": True}
        assert come_back(one).status_code == 303
        said = one.get("/v1/session").json()
        assert (said["user"], said["role"]) == ("ann.b", "viewer")


def test_without_a_provider_that_answers_it_is_said_what_lets_in(
    tmp_path: Path, there: oidc.Provider, own: Head
) -> None:
    gone = replace(rule_of(there), issuer="http://127.0.0.1:9")
    with head_with(tmp_path / "gone", gone) as head, browser(head) as one:
        answer = one.get("/v1/oidc/start")
        assert (answer.status_code, "corral ui" in answer.text) == (503, True)
    other = replace(rule_of(there), issuer=f"{there.url}/")
    with head_with(tmp_path / "other", other) as head, browser(head) as one:
        answer = one.get("/v1/oidc/start")
        assert (answer.status_code, "names the issuer" in answer.text) == (503, True)
    with browser(own) as one:
        refused = one.get("/v1/oidc/back", params={"error": "access_denied"})
        assert refused.status_code == 401


def test_nobody_is_sent_elsewhere_afterwards(own: Head) -> None:
    for to in (
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "jobs",
        "/a\nb",
    ):
        with browser(own) as one:
            assert come_back(one, to).headers["location"] == "/"


def test_a_head_without_a_provider_says_so(head: Head) -> None:
    with browser(head) as one:
        assert one.get("/v1/oidc").json() == {"provider": None}
        answer = one.get("/v1/oidc/start")
        assert (answer.status_code, "corral ui" in answer.text) == (404, True)
        assert (
            one.get("/v1/oidc/start", headers={"Host": "evil.example"}).status_code
            == 421
        )


def test_a_rule_that_lets_nobody_in_is_refused() -> None:
    with pytest.raises(SpecInvalid, match="no user could log in"):
        SignOnRule(issuer="https://a.example", client_id="c")


def test_the_address_that_comes_back_is_that_which_the_browser_knows(own: Head) -> None:
    with httpx2.Client(base_url=f"http://localhost:{own.port}", trust_env=False) as one:
        there = urlsplit(one.get("/v1/oidc/start").headers["location"])
        (redirect,) = parse_qs(there.query)["redirect_uri"]
        assert redirect == f"http://localhost:{own.port}/v1/oidc/back"
