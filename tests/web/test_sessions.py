"""The session of a browser: asked for, kept for one origin, and followed by streams."""

import pytest
from playwright.sync_api import Dialog, expect

from tests.scenarios.house import House
from tests.web.conftest import Visit
from tests.web.test_pages import link

pytestmark = pytest.mark.xdist_group("pages")
STATUS_OF = "async headers => (await fetch('/v1/status', {headers})).status"
STREAM_OF = "async () => (await fetch('/v1/events?follow=1')).status"
SECRET = "localStorage.getItem('corral-session')"


def test_a_link_logs_nobody_in_who_says_no(visit: Visit, here: House) -> None:
    asked: list[str] = []

    def refuse(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    visit.page.on("dialog", refuse)
    visit.page.goto(link(here))
    visit.page.get_by_label("Token").wait_for()
    assert len(asked) == 1
    assert asked[0].startswith("Log in as ")
    assert visit.page.context.cookies() == []


def test_a_reload_and_a_second_tab_stay_logged_in_and_a_cookie_alone_does_not(
    visit: Visit, here: House
) -> None:
    page = visit.page
    visit.log_in(link(here))
    page.reload()
    page.get_by_text("live", exact=True).first.wait_for()
    tab = page.context.new_page()
    tab.goto(f"{visit.url}/jobs")
    expect(tab.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    tab.get_by_text("live", exact=True).first.wait_for()
    secret = tab.evaluate(SECRET)
    tab.close()
    assert page.evaluate(STATUS_OF, {"Corral-Page": secret}) == 200
    assert page.evaluate(STATUS_OF, {}) == 401
    assert page.evaluate(STREAM_OF) == 401
    page.evaluate("localStorage.clear()")
    page.reload()
    page.get_by_label("Token").wait_for()
    visit.wrong[:] = [one for one in visit.wrong if "401" not in one]


def test_a_secret_in_a_link_of_somebody_else_logs_nobody_out(
    visit: Visit, here: House
) -> None:
    visit.log_in(link(here))
    kept = visit.page.evaluate(SECRET)
    visit.open("/jobs")
    visit.page.goto(f"{visit.url}/queues#session={'x' * 43}")
    visit.page.reload()
    visit.page.get_by_text("live", exact=True).first.wait_for()
    assert visit.page.evaluate(SECRET) == kept
    assert "session" not in visit.page.url
    visit.wrong[:] = [one for one in visit.wrong if "401" not in one]


def test_logs_go_on_where_they_were_when_the_head_comes_back(
    visit: Visit, here: House
) -> None:
    page = visit.page
    run = "for n in $(seq 1 3000); do echo line-$n; sleep 0.2; done"
    id = here.submit("talks", run, resources={"gpu": 1, "cpu": 0.1})
    here.until_state(id, "RUNNING")
    visit.log_in(link(here))
    visit.open(f"/jobs/{id}")
    page.get_by_text("line-3", exact=False).wait_for()
    here.ok("down", "--leave")
    page.get_by_text("unavailable now").wait_for()
    here.ok("up")
    page.locator(".link", has_text="live").last.wait_for()
    before = page.get_by_role("log").inner_text().splitlines()[-1]
    page.wait_for_function(
        "before => !document.querySelector('pre.logs').innerText.trim().endsWith(before)",
        arg=before,
    )
    lines = page.get_by_role("log").inner_text().split()
    assert len(lines) == len(set(lines)), "no line is there twice"
    here.ok("stop", id, "-y")
    visit.wrong.clear()  # a head that is away is an error to every browser
