"""Log-ins by the provider belong to an identity, never to a name that the provider
proposes."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.domain.errors import Forbidden
from corral.domain.sign_on import SignOnRule, identity_in
from corral.domain.users import Role
from tests import oidc
from tests.api.heads import Head
from tests.api.test_oidc import browser, come_back, head_with, link, rule_of


@pytest.fixture
def there() -> Iterator[oidc.Provider]:
    with oidc.provider() as made:
        yield made


@pytest.fixture
def own(tmp_path: Path, there: oidc.Provider) -> Iterator[Head]:
    with head_with(tmp_path, rule_of(there)) as head:
        yield head


def log_in(
    head: Head, there: oidc.Provider, name: str, subject: str
) -> tuple[int, str]:
    """(status, the user that is logged in, or the refusal's page)"""
    there.who = {"preferred_username": name, "groups": ["ml-team"], "sub": subject}
    with browser(head) as one:
        answer = come_back(one)
        said = (
            one.get("/v1/session").json()["user"]
            if answer.status_code == 303
            else answer.text
        )
        return answer.status_code, said


def test_a_local_user_is_not_taken_over_until_an_admin_links_the_log_in(
    own: Head, there: oidc.Provider
) -> None:
    status, page = log_in(own, there, "bob", "s-1")
    assert (status, "not linked" in page) == (403, True)
    (command,) = re.findall(r"corral user link bob --pending (p[0-9a-f]{16})", page)
    assert log_in(own, there, "bob", "s-1")[1] == page, (
        "the same log-in has the same id"
    )
    with own.http("admin") as admin, own.http("olga") as olga:
        (waits,) = admin.get("/v1/log-ins").json()["pending"]
        assert (waits["id"], waits["name"], waits["subject"]) == (command, "bob", "s-1")
        assert (
            olga.put("/v1/users/bob/identity", json={"pending": command}).status_code
            == 403
        )
        linked = admin.put("/v1/users/bob/identity", json={"pending": command})
        assert (linked.status_code, linked.json()["subject"]) == (200, "s-1"), (
            linked.text
        )
        assert admin.get("/v1/log-ins").json() == {"pending": []}
        assert log_in(own, there, "bob", "s-1") == (303, "bob")
        assert admin.delete("/v1/users/bob/identity").json()["subject"] is None
        assert log_in(own, there, "bob", "s-1")[0] == 403
        entries = admin.get("/v1/audit", params={"limit": 50}).json()["entries"]
        assert {"user.link", "user.unlink"} <= {one["what"] for one in entries}


def test_who_takes_the_name_of_a_linked_user_at_the_provider_is_another_person(
    own: Head, there: oidc.Provider
) -> None:
    assert log_in(own, there, "carol", "s-carol") == (303, "carol")
    status, page = log_in(own, there, "carol", "s-thief")
    assert (status, "linked to another" in page) == (403, True)
    assert log_in(own, there, "Carol-Renamed", "s-carol") == (303, "carol")
    with own.http("admin") as admin:
        assert "carol-renamed" not in {
            one["name"] for one in admin.get("/v1/users").json()["users"]
        }
        taken = admin.put(
            "/v1/users/bob/identity", json={"issuer": there.url, "subject": "s-carol"}
        )
        assert (taken.status_code, "corral user unlink carol" in taken.text) == (
            409,
            True,
        )


def test_no_log_in_makes_a_system_account_nor_any_user_where_that_is_off(
    tmp_path: Path, there: oidc.Provider
) -> None:
    rule = replace(rule_of(there), reserved=frozenset({"root", "munge"}))
    with head_with(tmp_path / "reserved", rule) as head:
        for name in ("root", "Munge"):
            status, page = log_in(head, there, name, "s-1")
            assert (status, "system account" in page) == (403, True)
    with head_with(tmp_path / "off", replace(rule, creates=False)) as head:
        status, page = log_in(head, there, "dave", "s-2")
        assert (status, "does not create one here" in page) == (403, True)
        with head.http("admin") as admin:
            admin.post("/v1/users", json={"name": "dave"})
            link(admin, "dave", there, "s-2")
        assert log_in(head, there, "dave", "s-2") == (303, "dave")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"issuer": "x"},
        {"subject": "x"},
        {"pending": "p1", "issuer": "x"},
        {"pending": "p1"},
    ],
)
def test_a_link_without_a_whole_identity_is_refused(
    head: Head, body: dict[str, str]
) -> None:
    with head.http("admin") as admin:
        answer = admin.put("/v1/users/bob/identity", json=body)
        assert answer.status_code == (404 if body == {"pending": "p1"} else 422)


def _identity(issuer: str, claims: dict[str, Any], **rule: Any) -> str:
    words = {"issuer": issuer, "client_id": "c", "roles": (("*", Role.USER),), **rule}
    return identity_in(claims, SignOnRule(**words)).subject


def test_entra_identifies_by_tenant_and_object_and_google_by_its_hosted_domain() -> (
    None
):
    entra = "https://login.microsoftonline.com/T/v2.0"
    claims = {
        "sub": "pairwise",
        "preferred_username": "ann@x.org",
        "tid": "T",
        "oid": "O",
    }
    assert _identity(entra, claims) == "T/O"
    with pytest.raises(Forbidden, match="no valid claim oid"):
        _identity(entra, {**claims, "oid": None})
    google = "https://accounts.google.com"
    assert _identity(google, {"sub": "1", "hd": "X.org"}, domain="x.org") == "1"
    for hd in (None, "y.org", 7):
        with pytest.raises(Forbidden, match="hosted domain"):
            _identity(google, {"sub": "1", "hd": hd}, domain="x.org")
    assert _identity(
        google, {"sub": "1", "hd": "y.org"}, domain="x.org", hosted_domain="y.org"
    )
    for sub in (None, "", "x" * 256, "\u00e9", 7):
        with pytest.raises(Forbidden):
            _identity("https://kc.example", {"sub": sub})
