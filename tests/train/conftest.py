from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.train.support import World, Zygote


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    made = Zygote(tmp_path_factory.mktemp("zygote"))
    yield made
    made.close()


@pytest.fixture
def world(zygote: Zygote, tmp_path: Path) -> World:
    return World(zygote, tmp_path)
