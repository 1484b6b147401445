"""The frame around the pages: sessions that end, rights, a head that is away,
titles."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import House, until
from tests.web.conftest import Visit

pytestmark = pytest.mark.xdist_group("pages")
PATIENCE_MS = PATIENCE_SECONDS * 1000
LOG_OUT_BESIDE = """async () => {
  const headers = {"Corral-Page": localStorage.getItem("corral-session")};
  return (await fetch("/v1/session", {method: "DELETE", headers})).status;
}"""
PLAN_IS_THERE = (
    "performance.getEntriesByType('resource').some(r => /Plan-/.test(r.name))"
)
ASLEEP = "exec sleep 3000"


@pytest.fixture(scope="module")
def lasting(here: House) -> Iterator[str]:
    """A job of the admin that runs on."""
    id = here.submit("framed", ASLEEP, resources={"gpu": 1, "cpu": 0.1})
    here.until_state(id, "RUNNING")
    yield id
    here.ok("stop", id, "-y")


def log_in(page: Page, visit: Visit, here: House, *words: str, path: str = "/") -> str:
    """Log in by a new token at this page; return the token's id."""
    made = here.answer("token", "create", *words)
    visit.open(path)
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type(made["token"])
    page.keyboard.press("Enter")
    page.get_by_text("live", exact=True).first.wait_for(timeout=PATIENCE_MS)
    return str(made["id"])


def test_a_session_that_ended_brings_the_log_in_and_then_the_same_page(
    visit: Visit, here: House, lasting: str
) -> None:
    page = visit.page
    log_in(page, visit, here, "--role", "viewer", path=f"/jobs/{lasting}")
    assert page.evaluate(LOG_OUT_BESIDE) == 204
    page.get_by_text("Your session has ended").wait_for(timeout=PATIENCE_MS)
    assert page.url.endswith(f"/jobs/{lasting}")
    log_in_again = here.answer("token", "create", "--role", "viewer")["token"]
    page.get_by_label("Token").fill(log_in_again)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("framed")
    visit.wrong[:] = [one for one in visit.wrong if "401" not in one]


def test_a_wrong_token_is_explained_to_a_person_at_a_browser(visit: Visit) -> None:
    page = visit.page
    visit.open("/")
    page.get_by_label("Token").fill("not-a-token-of-this-cluster")
    page.keyboard.press("Enter")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("corral ui")
    assert "CORRAL_TOKEN" not in alert.inner_text()
    visit.wrong[:] = [one for one in visit.wrong if "401" not in one]


def test_another_user_is_told_who_may_read_a_log_and_sees_no_outputs(
    visit: Visit, here: House
) -> None:
    """Without a request that is refused, which `visit` would find in the console."""
    here.ok("user", "add", "carla")
    id = here.submit("private", "echo mine > result", resources={"cpu": 0.1})
    here.until_over(id)
    page = visit.page
    log_in(page, visit, here, "carla", path=f"/jobs/{id}")
    expect(
        page.get_by_text(re.compile("Only .* and operators may read the log"))
    ).to_be_visible()
    expect(page.get_by_role("heading", name="Attempts")).to_be_visible()
    expect(page.get_by_role("heading", name="Kept outputs")).to_have_count(0)


def test_buttons_say_why_a_viewer_may_not_press_them(
    visit: Visit, here: House, lasting: str
) -> None:
    page = visit.page
    log_in(page, visit, here, "--role", "viewer", path=f"/jobs/{lasting}")
    cancel = page.get_by_role("button", name="Cancel")
    expect(cancel).to_have_attribute("aria-disabled", "true")
    expect(cancel).to_have_attribute(
        "title", re.compile("a viewer: viewers may not change jobs")
    )
    cancel.click(force=True)
    assert page.locator("dialog[open]").count() == 0
    visit.open("/nodes/n1")
    drain = page.get_by_role("button", name="Drain")
    expect(drain).to_have_attribute(
        "title", re.compile("only an operator may change nodes")
    )
    visit.open("/submit")
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    page.get_by_text("viewers may not submit jobs").wait_for(timeout=PATIENCE_MS)


def test_a_tab_names_the_job_and_its_state(
    visit: Visit, here: House, lasting: str
) -> None:
    with here.client() as client:
        visit.log_in(client.create_link().url)
    visit.open(f"/jobs/{lasting}")
    expect(visit.page).to_have_title("running · framed · Corral")
    mark = visit.page.locator("link[rel=icon]").get_attribute("href")
    assert mark is not None
    assert mark.startswith("data:image/svg+xml")
    visit.open("/nowhere")
    expect(visit.page).to_have_title("There is no such page · Corral")
    expect(visit.page.locator("link[rel=icon]")).to_have_attribute(
        "href", "/favicon.svg"
    )


def test_pages_go_on_while_the_head_is_away_and_say_as_of_when(
    visit: Visit, here: House
) -> None:
    page = visit.page
    with here.client() as client:
        visit.log_in(client.create_link().url)
    page.get_by_text("live", exact=True).first.wait_for(timeout=PATIENCE_MS)
    until(lambda: page.evaluate(PLAN_IS_THERE), "the code of all pages comes by itself")
    here.kill_head()
    banner = page.get_by_text(re.compile(r"as of \d\d:\d\d:\d\d [A-Z]"))
    banner.wait_for(timeout=PATIENCE_MS)
    for name in ("Queues", "Plan", "Nodes"):
        page.get_by_role("navigation").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
    here.ok("up", "-y")
    banner.wait_for(state="detached", timeout=PATIENCE_MS)
    visit.wrong[:] = [one for one in visit.wrong if "net::ERR" not in one]
