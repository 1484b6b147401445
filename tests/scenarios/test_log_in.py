"""corral login and logout: a terminal, a browser beside it, a provider and a real
head."""

import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import oidc
from tests.api.test_login import OURS
from tests.api.test_terminals import asked_for_code, typed
from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import CORRAL, House, house

pytestmark = pytest.mark.xdist_group("log-in")


@pytest.fixture(scope="module")
def there() -> Iterator[oidc.Provider]:
    with oidc.provider() as made:
        yield made


@pytest.fixture(scope="module")
def here(there: oidc.Provider) -> Iterator[House]:
    with house() as made:
        file = made.root.parent / "secret"
        file.write_text(f"{oidc.SECRET}\n")
        file.chmod(0o600)
        words = ("--oidc-client-id", oidc.CLIENT, "--oidc-secret-file", str(file))
        made.up("--nodes", "1", "--pretend", "--gpus", "1", "--oidc-issuer", there.url,
                *words, "--oidc-role", "ml-team=user")  # fmt: skip
        yield made


@contextmanager
def terminal(
    folder: Path, *words: str, **variables: str
) -> Iterator["subprocess.Popen[str]"]:
    """One command of somebody who has no directory of a cluster."""
    plain = {name: one for name, one in os.environ.items() if "CORRAL" not in name}
    env = {
        **plain,
        "CORRAL_DIR": str(folder),
        "TZ": "UTC",
        "COLUMNS": "200",
        **variables,
    }
    piped: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        [*CORRAL, *words], env=env, stdin=subprocess.DEVNULL, **piped
    ) as made:
        try:
            yield made
        finally:
            made.kill()


def run(folder: Path, *words: str, **variables: str) -> tuple[int, str, str]:
    with terminal(folder, *words, **variables) as made:
        out, said = made.communicate(timeout=PATIENCE_SECONDS)
        return made.returncode, out, said


def log_in(
    folder: Path, url: str, code: str = "", answer: str = "yes", **variables: str
) -> tuple[int, str, str]:
    """corral login, and what a person does in the browser meanwhile."""
    words = () if "CORRAL_URL" in variables else (url,)
    with terminal(folder, "login", "--oidc", *words, **variables) as made:
        assert made.stderr is not None
        shown = made.stderr.readline() + made.stderr.readline()
        page = re.search(rf"open {re.escape(url)}/v1/oidc/terminal\?id=(\w+)", shown)
        spoken = re.search(r"type the code ([A-Z]{4}-[A-Z]{4})", shown)
        assert page is not None, shown + made.stderr.read()
        assert spoken is not None, shown
        with httpx2.Client(
            base_url=url, headers=OURS, timeout=20, trust_env=False
        ) as browser:
            form = asked_for_code(browser, page[1])
            if form.status_code == 200:
                typed(browser, form, code or spoken[1], answer)
        out, said = made.communicate(timeout=PATIENCE_SECONDS)
        return made.returncode, out, said


def kept_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("log-ins/*"))


def test_a_person_logs_in_works_and_logs_out(here: House, tmp_path: Path) -> None:
    url = here.answer("status")["head"]["url"]
    code, out, said = log_in(tmp_path, url)
    assert code == 0, said
    assert f"ann is logged in at {url} until" in out
    assert f"export CORRAL_URL={url}" in said
    (file,) = kept_in(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["token"] not in out + said
    code, out, said = run(tmp_path, "user", "show", "ann", CORRAL_URL=url)
    assert (code, "ends in" in said) == (0, False), said
    code, out, said = run(tmp_path, "logout", CORRAL_URL=url)
    assert (code, "the token is revoked" in out) == (0, True), said
    assert kept_in(tmp_path) == []
    code, out, said = run(tmp_path, "ps", CORRAL_URL=url)
    assert (code, f"corral login --oidc {url}" in said) == (3, True), said
    tokens = here.answer("token", "ls")["tokens"]
    assert [one["state"] for one in tokens if one["user"] == "ann"] == ["revoked"]


def test_of_several_heads_the_first_that_answers_logs_in(
    here: House, tmp_path: Path
) -> None:
    url, dead = here.answer("status")["head"]["url"], "http://127.0.0.1:9"
    several = f"{dead},{url}/"
    code, out, said = log_in(tmp_path, url, CORRAL_URL=several)
    assert code == 0, said
    assert f"ann is logged in at {url} until" in out
    assert "export CORRAL_URL" not in said, "both addresses stay"
    code, _, said = run(tmp_path, "ps", CORRAL_URL=several)
    assert code == 0, said
    code, _, said = run(tmp_path, "login", "--oidc", f"{dead} http://127.0.0.1:19")
    assert code == 4, said
    assert f"no head answers at {dead}; no head answers at http://127.0.0.1:19" in said


def test_refusals_say_what_to_do(
    here: House, there: oidc.Provider, tmp_path: Path
) -> None:
    url = here.answer("status")["head"]["url"]
    code, _, said = log_in(tmp_path, url, answer="no")
    assert (code, "refused this log-in" in said) == (3, True), said
    assert kept_in(tmp_path) == []
    there.wrong = {"iss": "https://evil.example"}
    code, _, said = log_in(tmp_path, url)
    there.wrong = {}
    assert (code, "issuer (iss)" in said) == (3, True), said
    code, _, said = run(tmp_path, "login", "--oidc", "http://192.0.2.1:8470")
    assert (code, "without TLS" in said) == (3, True), said
    code, _, said = run(tmp_path, "login", url)
    assert (code, "--oidc" in said) == (2, True), said
    code, _, said = run(tmp_path, "logout", url)
    assert (code, "no log-in at" in said) == (3, True), said


def test_a_token_that_was_revoked_elsewhere_names_the_way_back(
    here: House, tmp_path: Path
) -> None:
    url = here.answer("status")["head"]["url"]
    assert log_in(tmp_path, url)[0] == 0
    id = json.loads(kept_in(tmp_path)[0].read_text())["id"]
    here.ok("token", "revoke", id, "-y")
    code, _, said = run(tmp_path, "ps", CORRAL_URL=url)
    assert (code, f"log in again: corral login --oidc {url}" in said) == (3, True), said
    code, out, said = run(tmp_path, "logout")
    assert (code, "the token was already invalid" in out) == (0, True), said


def test_a_logout_that_reaches_no_head_says_what_still_holds(
    here: House, tmp_path: Path
) -> None:
    url = here.answer("status")["head"]["url"]
    assert log_in(tmp_path, url)[0] == 0
    here.ok("down", "--leave")
    code, _, said = run(tmp_path, "logout")
    assert code == 4, said
    assert "the token was removed from this machine" in said
    assert "corral token revoke t" in said
    assert kept_in(tmp_path) == []


def test_a_head_without_a_provider_says_so(tmp_path: Path) -> None:
    with house() as made:
        made.up("--nodes", "1", "--pretend", "--gpus", "1")
        url = made.answer("status")["head"]["url"]
        code, _, said = run(tmp_path, "login", "--oidc", url)
    assert (code, "there is no identity provider" in said) == (3, True), said
