"""One head for the tests of a module that do not end it."""

from collections.abc import Iterator

import pytest

from tests.api.heads import Head, serving


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    with serving(tmp_path_factory.mktemp("head")) as head:
        yield head
