"""The list of jobs: one's own, sorted, arrays as one row, several changed by one
request."""

import re

import pytest
from playwright.sync_api import expect

from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import House
from tests.web.conftest import Visit
from tests.web.test_pages import link

pytestmark = pytest.mark.xdist_group("pages")
PATIENCE_MS = PATIENCE_SECONDS * 1000
ASLEEP = "exec sleep 3000"


def test_an_array_is_one_row_and_it_and_a_job_are_cancelled_by_one_request(
    visit: Visit, here: House
) -> None:
    here.ok("run", "-d", "-n", "grid", "--no-workdir", "--array", "0-4", "--", ASLEEP)
    alone = here.submit("alone", ASLEEP, resources={"cpu": 0.1})
    visit.log_in(link(here))
    page = visit.page
    page.get_by_role("navigation").get_by_role("link", name="Jobs").click()
    grid = page.get_by_role("listitem").filter(has_text="5 jobs")
    expect(grid).to_contain_text(re.compile("grid.*1 CPU, each.*5 "))
    grid.get_by_role("checkbox").check()
    page.get_by_label(f"Select {alone}").check()
    page.get_by_text("2 selected").wait_for(timeout=PATIENCE_MS)
    page.get_by_role("group", name="Selected jobs").get_by_role(
        "button", name="Cancel"
    ).click()
    with page.expect_request(re.compile("/v1/jobs/changes")) as sent:
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    body = sent.value.post_data_json
    assert isinstance(body, dict)
    assert (body["to"], len(body["jobs"])) == ("cancel", 2)
    page.get_by_text("6 jobs changed").wait_for(timeout=PATIENCE_MS)
    here.until_state(alone, "CANCELLED")


def test_ticked_runs_are_compared_also_when_they_are_over(
    visit: Visit, here: House
) -> None:
    runs = [
        here.submit(f"run-{letter}", "true", resources={"cpu": 0.1}) for letter in "ab"
    ]
    for run in runs:
        here.until_over(run)
    visit.log_in(link(here))
    visit.open("/jobs?state=all&text=run-")
    page = visit.page
    for run in runs:
        page.get_by_label(f"Select {run}").check()
    picked = page.get_by_role("group", name="Selected jobs")
    expect(picked.get_by_role("button", name="Cancel")).to_be_disabled()
    picked.get_by_role("link", name="Compare").click()
    page.get_by_role("heading", name="Compare jobs").wait_for(timeout=PATIENCE_MS)
    for name in ("run-a", "run-b"):
        expect(page.get_by_role("columnheader", name=re.compile(name))).to_be_visible()


def test_an_array_in_the_list_leads_to_its_page_without_an_error(
    visit: Visit, here: House
) -> None:
    """`visit` fails a test whose browser writes an error, such as of an answer of
    404."""
    here.ok("run", "-d", "-n", "shoal", "--no-workdir", "--array", "0-2", "--", "true")
    visit.log_in(link(here))
    visit.open("/jobs?state=all&text=shoal")
    page = visit.page
    page.get_by_role("link", name=re.compile("shoal.*3 jobs")).click()
    page.get_by_role("heading", name="shoal").wait_for(timeout=PATIENCE_MS)
    expect(page.get_by_text("an array of 3 jobs")).to_be_visible()
    page.reload()
    expect(page.get_by_text("an array of 3 jobs")).to_be_visible()


def test_ones_own_jobs_are_shown_with_what_ended_lately_and_sorted(
    visit: Visit, here: House
) -> None:
    failed = here.submit("broken", "exit 3", resources={"cpu": 0.1})
    here.until_state(failed, "FAILED")
    visit.log_in(link(here))
    visit.open("/jobs")
    page = visit.page
    page.get_by_role("button", name="Mine").click()
    page.get_by_text("broken").first.wait_for(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Name").click()
    expect(page).to_have_url(re.compile("sort=name"))
    expect(page.get_by_role("listitem").first).to_contain_text(
        re.compile("alone|broken")
    )
    visit.open("/")
    row = page.get_by_role("row").filter(has_text="broken").first
    expect(row).to_contain_text("exit code 3")
    expect(page.get_by_text("Failed in 24 h")).to_be_visible()
