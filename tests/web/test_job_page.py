"""The page of one job: what stays when it is over, and its logs whole."""

import re

import pytest
from playwright.sync_api import expect

from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import House
from tests.web.conftest import Visit, faults

pytestmark = pytest.mark.xdist_group("pages")
PATIENCE_MS = PATIENCE_SECONDS * 1000
# Heartbeats for three points of its curves, which are kept each 10 s; its loss diverges on
# the way.
TRAINER = """
import json, os, socket, time
shim = socket.socket(socket.AF_UNIX)
shim.connect(os.environ["CORRAL_SOCKET"])
for step in range(1, 105):
    loss = 2.0 / step if step < 55 else float("nan")
    beat = {"type": "progress", "rank": 0, "step": step, "until": 1000, "loss": loss,
            "samples_per_second": 64.0, "compute_seconds": 0.3 * step,
            "scalars": {"accuracy": step / 104}}
    shim.sendall(json.dumps(beat).encode() + b"\\n")
    time.sleep(0.3)
"""


@pytest.fixture(scope="module", autouse=True)
def trained(here: House) -> str:
    """A job that trains beside the other tests."""
    file = here.shared / "trainer.py"
    file.write_text(TRAINER)
    return here.submit(
        "trained", f"exec python3 {file}", resources={"gpu": 1, "cpu": 0.1}
    )


def enter(visit: Visit, here: House, path: str) -> None:
    with here.client() as client:
        visit.log_in(client.create_link().url)
    visit.open(path)


def test_curves_and_strips_of_an_ended_job_stay_and_end_with_it(
    visit: Visit, here: House, trained: str
) -> None:
    job = here.until_over(trained)
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))
    enter(visit, here, f"/jobs/{trained}")
    training = visit.page.locator("section.card", has_text="Last step")
    expect(training.locator(".plot canvas")).to_have_count(3)
    expect(training).to_contain_text("accuracy")
    expect(training).to_contain_text("Last step104")
    expect(training).to_contain_text("The loss is not a number since step")
    strips = visit.page.get_by_role("region", name="Attempt 1")
    expect(strips.locator("canvas")).to_have_attribute(
        "aria-label", re.compile("busy on average")
    )
    expect(strips).not_to_contain_text("now")
    uses = visit.page.locator("section.card", has_text="Where its time went")
    expect(uses.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("useful")
    )
    expect(uses).to_contain_text(re.compile(r"Effective training time \(ETTR\) \d"))
    nodes = [url for url in asked if "series?key=node" in url]
    assert nodes
    assert all(f"until={job.attempts[0].ended_at}" in url for url in nodes)
    expect(visit.page.locator("dl.pairs", has_text="Ran for")).to_contain_text(
        re.compile(r"Ran for3\d s")
    )


def test_a_job_that_trains_shows_when_it_ends_and_at_which_line_it_is(
    visit: Visit, here: House
) -> None:
    id = here.submit(
        "training",
        f"exec python3 {here.shared}/trainer.py",
        resources={"gpu": 1, "cpu": 0.1},
    )
    here.until_state(id, "RUNNING")
    enter(visit, here, f"/jobs/{id}")
    expect(
        visit.page.get_by_text(
            re.compile("in about 4 min .*estimated from its step time")
        )
    ).to_be_visible()
    visit.page.get_by_role("button", name="Read the stacks").click()
    stacks = visit.page.locator("section.card", has_text="Read again")
    expect(stacks).to_contain_text(re.compile(r"rank 0.*trainer\.py:\d+", re.DOTALL))
    assert not faults(visit.page)
    here.ok("stop", id, "-y")


@pytest.fixture(scope="module")
def noisy(here: House) -> str:
    """A job whose log holds 10,000 lines, colours, and a bar that is drawn over
    itself."""
    lines = r'i=0; while [ $i -lt 10000 ]; do echo "line $i of it"; i=$((i+1)); done'
    bar = r'printf "\r 10%%|#"; printf "\r100%%|######\n"; printf "\033[31mred\033[0m end\n"'
    id = here.submit("noisy", f"{lines}; {bar}", resources={"cpu": 0.1})
    here.until_over(id)
    return id


def test_a_log_is_searched_read_back_and_downloaded(
    visit: Visit, here: House, noisy: str
) -> None:
    page = visit.page
    enter(visit, here, f"/jobs/{noisy}")
    log = page.get_by_role("log", name="Logs")
    expect(log).to_contain_text("red end")
    text = log.inner_text()
    assert "100%|######" in text
    assert " 10%" not in text
    assert "[31m" not in text
    expect(log.locator(".ink-1")).to_have_text("red")
    first = int(re.findall(r"line (\d+)", text)[0])
    assert 0 < first < 9_000
    page.get_by_role("button", name="Times").click()
    expect(log.locator("time").last).to_have_text(re.compile(r"^\d\d:\d\d:\d\d $"))
    page.get_by_role("button", name="Times").click()
    expect(log.locator("time")).to_have_count(0)
    page.get_by_role("button", name="Load earlier lines").click()
    expect(log).not_to_contain_text("Load earlier lines")
    assert "line 0 of it" in log.inner_text()
    page.get_by_label("Text to find in the log").fill("LINE 7777")
    page.get_by_role("button", name="Find", exact=True).click()
    page.get_by_label("Lines that were found").get_by_role("button").click()
    expect(log.locator("mark")).to_have_text("line 7777 of it")
    page.get_by_role("button", name="Back to the end").click()
    with page.expect_download() as taken:
        page.get_by_role("button", name="Download").click()
    assert taken.value.suggested_filename == f"{noisy}.1.rank-0.log"
    assert taken.value.path().read_bytes().count(b" of it\n") == 10_000


def test_scrolling_up_stops_following(visit: Visit, here: House) -> None:
    id = here.submit(
        "talks",
        "i=0; while :; do i=$((i+1)); echo says $i; sleep 0.02; done",
        resources={"cpu": 0.1},
    )
    enter(visit, here, f"/jobs/{id}")
    page = visit.page
    log = page.get_by_role("log", name="Logs")
    expect(log).to_contain_text("says 100")
    expect(page.get_by_role("button", name="Stay here")).to_be_visible()
    log.evaluate("box => { box.scrollTop = 0 }")
    expect(page.get_by_role("button", name="Follow")).to_be_visible()
    said = log.inner_text().count("says")
    page.wait_for_function(
        "said => document.querySelector('pre.logs').innerText.split('says').length > said + 20",
        arg=said,
    )
    assert log.evaluate("box => box.scrollTop") == 0
    here.ok("stop", id, "-y")


def test_six_tabs_of_one_browser_all_work(visit: Visit, here: House) -> None:
    """Over HTTP/1.1 a browser has six connections to a host."""
    ids = [
        here.submit(
            f"tab-{number}",
            "i=0; while :; do i=$((i+1)); echo says $i; sleep 0.2; done",
            resources={"cpu": 0.01},
        )
        for number in range(6)
    ]
    enter(visit, here, f"/jobs/{ids[0]}")
    pages = [visit.page, *(visit.page.context.new_page() for _ in ids[1:])]
    for page, id in zip(pages[1:], ids[1:], strict=True):
        page.goto(f"{visit.url}/jobs/{id}")
    for page in pages:
        expect(page.get_by_role("log", name="Logs")).to_contain_text("says 20")
        expect(page.locator(".foot .link")).to_have_text("live")
    here.ok("stop", *ids, "-y")
    for page in pages:  # and each hears of the end
        expect(page.locator(".head .state")).to_have_text("cancelled")


def test_jobs_are_compared_in_one_plot_a_scalar(
    visit: Visit, here: House, trained: str
) -> None:
    page = visit.page
    here.until_over(trained)
    other = here.submit("other", "true", resources={"cpu": 0.1})
    here.until_over(other)
    page.set_viewport_size({"width": 390, "height": 844})
    enter(visit, here, f"/jobs/{trained}")
    page.get_by_role("link", name="Compare").click()
    page.get_by_role("heading", name="Compare jobs").wait_for()
    page.get_by_label("Ids or names of jobs").fill("other")
    page.get_by_role("button", name="Add").click()
    page.wait_for_url(re.compile(f"jobs={trained}(,|%2C)other"))
    remove = page.get_by_role("button", name=f"Remove {other}")
    expect(remove).to_be_visible()
    figures = page.get_by_role("figure")
    expect(figures).to_have_count(3)
    expect(figures.first.locator("canvas")).to_have_count(1)
    page.get_by_label("Smoothing").select_option("0.8")
    page.get_by_role("button", name="Log axis").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert faults(page) == []
    remove.click()
    expect(remove).to_have_count(0)


def test_kept_outputs_are_listed_and_downloaded(visit: Visit, here: House) -> None:
    long = "a-folder-whose-name-is-long/" * 4 + "note.txt"
    line = f"mkdir -p $(dirname {long}); echo far > {long}; echo weights > model.pt"
    id = here.submit("writes", line, resources={"cpu": 0.1})
    here.until_over(id)
    enter(visit, here, f"/jobs/{id}")
    page = visit.page
    kept = page.locator("section.card", has_text="Kept outputs")
    expect(kept).to_contain_text("model.pt")
    for path, content in (("model.pt", "weights\n"), (long, "far\n")):
        with page.expect_download() as got:
            kept.get_by_role("button", name=f"Download {path} of").click()
        assert got.value.suggested_filename == path.rpartition("/")[2]
        assert got.value.path().read_text() == content


def test_on_a_phone_tables_of_a_job_are_stacks_that_cut_no_sentence(
    visit: Visit, here: House
) -> None:
    id = here.submit("sinks", "echo why; exit 7", resources={"cpu": 0.1})
    here.until_over(id)
    visit.page.set_viewport_size({"width": 390, "height": 844})
    enter(visit, here, f"/jobs/{id}")
    table = visit.page.get_by_role("table", name="Attempts").or_(
        visit.page.locator("section.card", has_text="How it ended").locator("table")
    )
    ended = table.locator("td[data-name='How it ended']")
    expect(ended).to_contain_text("exit code 7")
    box = ended.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert ended.evaluate("cell => cell.scrollWidth <= cell.clientWidth")


def test_an_array_has_a_page_with_its_jobs_by_state(visit: Visit, here: House) -> None:
    page = visit.page
    with here.client() as client:
        run = "exit $CORRAL_ARRAY_INDEX"
        spec = {"name": "sweep", "array": "0-2", "run": run, "resources": {"cpu": 0.01}}
        jobs = client.submit(spec)
    for job in jobs:
        here.until_over(job.id)
    enter(visit, here, f"/jobs/{jobs[0].array}")
    expect(page.get_by_role("heading", level=1)).to_have_text("sweep")
    page.get_by_role("button", name="failed 2").click()
    rows = page.get_by_role("row").filter(has_text="failed")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("exit code 1")
    assert faults(page) == []
    # it is no job's own page
    visit.wrong[:] = [one for one in visit.wrong if "404" not in one]


def test_a_spec_is_shown_edited_and_submitted_again(visit: Visit, here: House) -> None:
    page = visit.page
    spec = {
        "resources": {"cpu": 0.1},
        "env": {"LEARNING_RATE": "0.1"},
        "retry": {"user": 2},
    }
    id = here.submit("first-try", "echo $LEARNING_RATE", **spec)
    here.until_over(id)
    enter(visit, here, f"/jobs/{id}")
    page.get_by_role("button", name="Show", exact=True).click()
    shown = page.get_by_role("region", name="Spec")
    expect(shown).to_contain_text("LEARNING_RATE")
    expect(shown).to_contain_text("user: 2")
    assert faults(page) == []
    page.get_by_role("button", name="Edit and submit again").click()
    text = page.get_by_label("Spec, in YAML")
    text.fill(
        text.input_value().replace("first-try", "second-try").replace("0.1", "0.2")
    )
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile("/jobs/j"))
    page.get_by_role("heading", name="second-try").wait_for()
    expect(page.get_by_role("log", name="Logs")).to_contain_text("0.2")
