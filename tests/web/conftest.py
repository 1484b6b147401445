"""One browser and one cluster for the tests of the pages."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import chromium
from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import House, house


# while it is open, nobody else can run a loop in this process
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium.build_pages()
    with chromium.browser() as made:
        expect.set_options(timeout=1000 * PATIENCE_SECONDS)
        yield made


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    words = ("--nodes", "3", "--gpus", "2", "--pretend", "--topology", "racks=2")
    with house(*words, "--reboot", "3600") as made:
        yield made


@dataclass
class Visit:
    """Somebody at the pages, and what went wrong meanwhile."""

    page: Page
    url: str
    wrong: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"raised: {error}"))
        self.page.on("request", self._request)

    def _console(self, said: Any) -> None:
        if "ERR_NETWORK_CHANGED" in said.text:
            return  # other tests add and remove interfaces of this machine
        if said.type in ("error", "warning"):
            self.wrong.append(f"console: {said.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.wrong.append(f"asked another host: {request.url}")

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}{path}")

    def log_in(self, link: str) -> None:
        # it asks who is to be logged in
        self.page.once("dialog", lambda asked: asked.accept())
        self.page.goto(link)
        self.page.get_by_role("heading", name="Overview").wait_for()


SERIOUS = ("serious", "critical")


def faults(page: Page) -> list[str]:
    """What axe finds that keeps people out, but for what is only a matter of taste."""
    page.evaluate(chromium.axe())
    found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes'][:3]]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
    ]


@pytest.fixture
def visit(browser: Browser, here: House) -> Iterator[Visit]:
    """Not logged in. What has gone wrong by the end fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    context.set_default_timeout(1000 * PATIENCE_SECONDS)
    made = Visit(context.new_page(), here.answer("status")["head"]["url"])
    made.watch()
    yield made
    context.close()
    assert made.wrong == []
