"""Coroutine tests of the agent run in a loop of their own; a node leaves nothing
behind."""

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.nodes import node_folder


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(
        pyfuncitem.function(**{name: pyfuncitem.funcargs[name] for name in names})
    )
    return True


@pytest.fixture
def node_dir() -> Iterator[Path]:
    with node_folder() as folder:
        yield folder
