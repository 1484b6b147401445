"""The page of one job: what stays when it is over, and its logs whole."""

import re

import pytest
from playwright.sync_api import expect

from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import House
from tests.web.conftest import Visit

pytestmark = pytest.mark.xdist_group("pages")
PATIENCE_MS = PATIENCE_SECONDS * 1000
# Beats for three points of its curves, which are kept each 10 s; its loss diverges on the way.
TRAINER = """
import json, os, socket, time
shim = socket.socket(socket.AF_UNIX)
shim.connect(os.environ["CORRAL_SOCKET"])
for step in range(1, 105):
    loss = 2.0 / step if step < 55 else float("nan")
    beat = {"type": "progress", "rank": 0, "step": step, "until": 1000, "loss": loss,
            "samples_per_second": 64.0, "compute_seconds": 0.3 * step}
    shim.sendall(json.dumps(beat).encode() + b"\\n")
    time.sleep(0.3)
"""


@pytest.fixture(scope="module", autouse=True)
def trained(here: House) -> str:
    """A job that trains beside the other tests."""
    file = here.shared / "trainer.py"
    file.write_text(TRAINER)
    return here.submit("trained", f"exec python3 {file}", resources={"gpu": 1, "cpu": 0.1})


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
    expect(training.locator(".plot canvas")).to_have_count(2)
    expect(training).to_contain_text("Last step104")
    expect(training).to_contain_text("The loss is not a number since step")
    strips = visit.page.get_by_role("region", name="Attempt 1")
    expect(strips.locator("canvas")).to_have_attribute("aria-label", re.compile("busy on average"))
    expect(strips).not_to_contain_text("now")
    nodes = [url for url in asked if "series?key=node" in url]
    assert nodes
    assert all(f"until={job.attempts[0].ended_at}" in url for url in nodes)
    expect(visit.page.locator("dl.pairs", has_text="Ran for")).to_contain_text(
        re.compile(r"Ran for3\d s")
    )


def test_a_job_that_trains_shows_when_it_ends(visit: Visit, here: House) -> None:
    id = here.submit(
        "training", f"exec python3 {here.shared}/trainer.py", resources={"gpu": 1, "cpu": 0.1}
    )
    here.until_state(id, "RUNNING")
    enter(visit, here, f"/jobs/{id}")
    expect(
        visit.page.get_by_text(re.compile("in about 4 min .*by the time of its steps"))
    ).to_be_visible()
    here.ok("stop", id, "-y")
