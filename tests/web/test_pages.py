"""The pages in a real browser: each draws without an error, and says what happens as it
happens."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import House
from tests.web.conftest import Visit, faults

pytestmark = pytest.mark.xdist_group("pages")
PATIENCE_MS = PATIENCE_SECONDS * 1000
PHONE = {"width": 390, "height": 844}
PAGES = {
    "/": "Overview",
    "/jobs?state=all": "Jobs",
    "/jobs/JOB": "lasting",
    "/nodes": "Nodes",
    "/nodes/n1": "n1",
    "/queues": "Queues",
    "/queues/default": "default",
    "/services": "Services",
    "/services/chat": "chat",
    "/money": "Money",
    "/plan": "Plan",
    "/submit": "Submit a job",
    "/nowhere": "There is no such page",
}


@pytest.fixture(scope="module")
def lasting(here: House) -> Iterator[str]:
    """A job that runs on, and has printed something."""
    line = "echo first line; exec sleep 3000"
    id = here.submit("lasting", line, resources={"gpu": 1, "cpu": 0.1})
    here.until_state(id, "RUNNING")
    yield id
    here.ok("stop", id, "-y")


@pytest.fixture(scope="module", autouse=True)
def chat(here: House) -> Iterator[None]:
    """A service whose replica does not answer its probe."""
    spec = {"name": "chat", "run": "exec sleep 3000", "resources": {"cpu": 0.1}}
    with here.client() as client:
        client.apply_services({"kind": "service", "model": "tiny", **spec})
    yield
    here.ok("service", "stop", "chat", "-y")


def link(here: House) -> str:
    with here.client() as client:
        return client.create_link().url


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_each_page_draws_without_an_error_and_keeps_nobody_out(
    visit: Visit, here: House, lasting: str, path: str, scheme: Any
) -> None:
    visit.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    visit.log_in(link(here))
    visit.open(path.replace("JOB", lasting))
    expect(visit.page.get_by_role("heading", level=1)).to_have_text(PAGES[path])
    visit.page.get_by_text("live", exact=True).first.wait_for(timeout=PATIENCE_MS)
    assert faults(visit.page) == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_a_phone(
    visit: Visit, here: House, lasting: str, path: str
) -> None:
    visit.page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    visit.log_in(link(here))
    visit.open(path.replace("JOB", lasting))
    expect(visit.page.get_by_role("heading", level=1)).to_have_text(PAGES[path])
    visit.page.get_by_text("live", exact=True).first.wait_for(timeout=PATIENCE_MS)
    wide = visit.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= PHONE["width"]
    # tables are wider than it, and the keyboard comes to them
    assert faults(visit.page) == []


def test_a_waiting_job_says_its_place_and_when_it_starts(
    visit: Visit, here: House
) -> None:
    first = here.submit(
        "first", "exec sleep 3000", nodes=3, resources={"gpu": 2, "cpu": 0.1}
    )
    waits = here.submit("waits", "true", nodes=3, resources={"gpu": 2, "cpu": 0.1})
    visit.log_in(link(here))
    visit.open(f"/jobs/{waits}")
    page = visit.page
    expect(page.get_by_text("Number ")).to_contain_text(
        re.compile(r"Number \d of \d in line")
    )
    expect(page.get_by_text(re.compile("^It starts "))).to_be_visible()
    for id in (waits, first):
        here.ok("stop", id, "-y")


def test_a_node_shows_what_checks_have_found(visit: Visit, here: House) -> None:
    here.ok("doctor", "gpu", "--node", "n3", "--seconds", "0.2", "-y")
    visit.log_in(link(here))
    visit.open("/nodes/n3")
    row = visit.page.get_by_role("row", name=re.compile("memory GPU 1"))
    expect(row).to_contain_text(re.compile(r"passed.*TB/s.*TB/s"))


def test_a_token_lets_in_until_one_logs_out(
    browser: Browser, visit: Visit, here: House
) -> None:
    page = visit.page
    token = here.answer("token", "create", "--role", "viewer")["token"]
    visit.open("/jobs")
    page.get_by_label("Token").wait_for()
    # nobody is logged in, and no browser is made to complain of it
    assert not visit.wrong
    page.get_by_label("Token").fill("not-a-token-of-this-cluster")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Jobs", level=1).wait_for()
    assert page.evaluate("document.cookie") == ""  # no script reads it
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token").wait_for()
    # what a browser says of it
    visit.wrong[:] = [one for one in visit.wrong if "401" not in one]


def test_a_link_that_was_used_lets_nobody_in(visit: Visit, here: House) -> None:
    used = here.answer("ui")["url"]
    visit.log_in(used)
    assert "login" not in visit.page.url  # nor is it kept in the browser's history
    visit.page.context.clear_cookies()
    visit.open("/nowhere")
    visit.page.goto(used)
    visit.page.get_by_label("Token").wait_for()
    visit.wrong[:] = [one for one in visit.wrong if "401" not in one]


def test_a_plan_is_asked_for_in_the_words_of_the_catalog(
    visit: Visit, here: House
) -> None:
    page = visit.page
    visit.log_in(link(here))
    visit.open("/plan")
    model = page.get_by_label("Model (required)")
    assert "llama-3.1-8b" in model.evaluate(
        "one => [...one.list.options].map(o => o.value)"
    )
    model.fill("llama-3.1-8b")
    page.get_by_label("GPUs (required)").fill("8")
    page.get_by_label("Tokens", exact=True).fill("15T")
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_role("heading", name="Training llama-3.1-8b on 8 x").wait_for()
    page.get_by_text("GPU-hours", exact=True).wait_for()


def test_a_job_is_written_tried_submitted_and_seen_to_its_end(
    visit: Visit, here: House
) -> None:
    page = visit.page
    visit.log_in(link(here))
    page.get_by_role("navigation").get_by_role("link", name="Submit").click()
    spec = page.get_by_label("Spec, in YAML")
    spec.fill("name: story\nresources: {gpu: 99}\nrun: echo it is told")
    page.get_by_role("button", name="Dry run").click()
    page.get_by_role("alert").wait_for()  # no node could ever hold it
    spec.fill("name: story\nresources: {cpu: 0.1}\nrun: echo it is told")
    page.get_by_role("button", name="Dry run").click()
    page.get_by_text(re.compile("story would start now on n")).wait_for()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile("/jobs/j"))
    expect(page.locator(".head .state")).to_have_text("done", timeout=PATIENCE_MS)
    expect(page.get_by_role("log", name="Logs")).to_contain_text(
        "it is told", timeout=PATIENCE_MS
    )
    # Not RUNNING: a job that ends between two heartbeats goes from STARTING to DONE.
    for state in ("QUEUED", "STARTING", "DONE"):
        page.get_by_text(f"story is {state}").wait_for()
    visit.wrong[:] = [one for one in visit.wrong if "422" not in one]


def test_a_failed_job_says_what_it_failed_of_and_what_to_do(
    visit: Visit, here: House
) -> None:
    id = here.submit(
        "breaks", 'python3 -c "import no_such_module"', resources={"cpu": 0.1}
    )
    here.until_state(id, "FAILED")
    told = here.answer("why", id)["failed"]  # the same words
    visit.log_in(link(here))
    visit.open(f"/jobs/{id}")
    said = visit.page.get_by_label("Why attempt 1 failed")
    for word in ("text", "culprit", "quote", "next"):
        assert told[word]
        expect(said).to_contain_text(told[word])
    expect(said).to_contain_text("missing module")  # in words, not as missing-module
    # said once
    expect(visit.page.locator("dl", has_text=told["evidence"])).to_have_count(0)
    expect(said).to_contain_text("exit code 1")
    tried = visit.page.get_by_role("row").filter(has_text="missing module")
    expect(tried).to_contain_text(told["quote"])


def test_jobs_are_found_and_stopped(visit: Visit, here: House) -> None:
    ids = [
        here.submit(f"found-{number}", "sleep 3000", resources={"cpu": 0.01})
        for number in (1, 2)
    ]
    visit.log_in(link(here))
    page = visit.page
    visit.open("/jobs")
    page.get_by_label("Find jobs by name or id").fill("FOUND-1")
    rows = page.get_by_role("listitem")
    expect(rows).to_have_count(1, timeout=PATIENCE_MS)
    rows.get_by_role("link").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator(".head .state")).to_have_text("cancelled", timeout=PATIENCE_MS)
    assert [here.job(id).state for id in ids] == ["CANCELLED", "RUNNING"]
    here.ok("stop", ids[1], "-y")


def test_a_node_that_dies_is_seen_to_while_one_looks(visit: Visit, here: House) -> None:
    page = visit.page
    visit.log_in(link(here))
    visit.open("/nodes")
    cell = page.get_by_role("link", name=re.compile("^n3: "))
    expect(cell).to_contain_text("alive")
    moved = here.submit("moved", "exec sleep 3000", constraints={"node": "n3"})
    here.until_state(moved, "RUNNING")
    here.kill_node("n3")
    expect(cell).not_to_contain_text("alive", timeout=PATIENCE_MS)
    page.get_by_label("Which nodes").select_option("With problems")
    expect(page.get_by_role("row").filter(has_text="n3")).to_be_visible()
    cell.click()
    lost = page.locator("section.card", has_text="Jobs lost with this node")
    expect(lost.get_by_role("row").filter(has_text="moved")).to_contain_text("queued")
    expect(page.get_by_text("moved is RECOVERING").first).to_be_visible()
    visit.open("/")
    expect(page.get_by_text("jobs lost with it")).to_contain_text(moved)
    here.ok("stop", moved, "-y")
