from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.train.support import World, Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture
def world(zygote: Zygote, tmp_path: Path) -> World:
    return World(zygote, tmp_path)
