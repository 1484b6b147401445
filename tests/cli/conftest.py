"""A head that the command line finds by its environment, and one node that a test
plays."""

from collections.abc import Iterator

import pytest

from tests.api.heads import TOKENS, Agent, Head, eventually, serving


@pytest.fixture
def head(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Head]:
    monkeypatch.delenv("CORRAL_DIR", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    with serving(tmp_path_factory.mktemp("head")) as head:
        monkeypatch.setenv("CORRAL_URL", head.url)
        monkeypatch.setenv("CORRAL_TOKEN", TOKENS["admin"])
        yield head


@pytest.fixture
def agent(head: Head) -> Iterator[Agent]:
    agent = Agent(head, "n1", gpus=4).hello()
    agent.beat()
    eventually(lambda: "n1" in head.control.world.nodes)
    yield agent
    agent.close()
