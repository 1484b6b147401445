"""Log-in by a provider in a real browser: the way there, back, and a token for the
command line."""

from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from tests import oidc
from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import House, house
from tests.web.conftest import Visit

pytestmark = pytest.mark.xdist_group("pages")


@pytest.fixture(scope="module")
def there() -> Iterator[oidc.Provider]:
    with oidc.provider() as made:
        yield made


@pytest.fixture(scope="module")
def here(there: oidc.Provider) -> Iterator[House]:
    secret = ("--nodes", "1", "--gpus", "1", "--pretend", "--oidc-issuer", there.url)
    with house() as made:
        file = made.root.parent / "secret"
        file.write_text(f"{oidc.SECRET}\n")
        file.chmod(0o600)
        words = ("--oidc-client-id", oidc.CLIENT, "--oidc-secret-file", str(file))
        made.up(*secret, *words, "--oidc-role", "ml-team=user")
        yield made


def test_who_logs_in_at_the_provider_is_where_they_wanted_to_be(
    browser: Browser, here: House, there: oidc.Provider
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    context.set_default_timeout(1000 * PATIENCE_SECONDS)
    visit = Visit(context.new_page(), here.answer("status")["head"]["url"])
    page = visit.page
    page.on("pageerror", lambda error: visit.wrong.append(str(error)))
    visit.open("/queues")
    page.get_by_role("link", name="Log in with 127.0.0.1").click()
    page.get_by_role("heading", name="Queues", level=1).wait_for()
    expect(page.get_by_text("ann · user")).to_be_visible()
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Token for the command line").click()
    page.get_by_role("button", name="Create token").click()
    typed = page.locator("dialog pre").inner_text()
    token = typed.partition("CORRAL_TOKEN=")[2].strip()
    page.get_by_role("button", name="Close").click()
    with here.client() as client:
        assert "ann" in {one.name for one in client.users()}
    assert token.startswith("corral_")
    page.get_by_role("button", name="Log out").click()
    ann, there.who = there.who, {"preferred_username": "eve", "groups": []}
    page.get_by_role("link", name="Log in with 127.0.0.1").click()
    page.get_by_role("heading", name="You are not logged in").wait_for()
    page.get_by_text("none of your groups").wait_for()
    there.who = ann
    page.get_by_role("link", name="Log in").click()
    page.get_by_label("Token").wait_for()
    context.close()
    assert visit.wrong == []


def test_who_types_the_code_of_a_terminal_logs_it_in(
    browser: Browser, here: House
) -> None:
    url = here.answer("status")["head"]["url"]
    with httpx2.Client(base_url=url, trust_env=False) as terminal:
        begun = terminal.post("/v1/oidc/terminals").json()
        context = browser.new_context()
        context.set_default_timeout(1000 * PATIENCE_SECONDS)
        page = context.new_page()
        page.goto(f"{url}/v1/oidc/terminal?id={begun['id']}")
        page.get_by_role("heading", name="Log in a terminal as ann").wait_for()
        page.get_by_label("Code").fill(begun["code"])
        page.get_by_role("button", name="Log in the terminal").click()
        page.get_by_role("heading", name="ann is logged in there").wait_for()
        context.close()
        fetched = terminal.post(
            "/v1/oidc/terminals/token", json={"secret": begun["secret"]}
        )
    assert fetched.json()["user"] == "ann"
