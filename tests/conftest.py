"""What holds for every test: the same generated examples each time, however slow the
machine.

`--hypothesis-profile search` draws new ones, as `make soak` does. An example that fails
is shown as it was drawn, since a search for a smaller one takes up to five minutes for
each test; `--hypothesis-profile shrink` finds the same one and shrinks it.
"""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from tests.postgres import Server
    from tests.slurm import Slurm

# What tests start reads Corral compiled, also where PYTHONDONTWRITEBYTECODE is set:
# each head, agent and command would compile all of it for itself, and each process of
# pytest all the tests.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# jobs of tests have the Python of the tests
for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
    os.environ.pop(name, None)

# numba's quick level compiles the replays in half the time, to the same results; what
# it keeps is for tests alone. `make soak` compiles them as users do.
LEVEL = os.environ.setdefault("NUMBA_OPT", "1")
KEPT = Path(__file__).parents[1] / ".pytest_cache" / f"numba-{LEVEL}"
os.environ.setdefault("NUMBA_CACHE_DIR", str(KEPT))

settings.register_profile(
    "shrink",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "steady",
    settings.get_profile("shrink"),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target),
)
settings.register_profile(
    "search",
    max_examples=2_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")

# What replays at the speed of compiled code: in one process, or each would compile it
# for itself.
PAGE = (
    "tests/docs/test_command_blocks.py::test_the_commands_of_a_page_run_in_their_order"
)
COMPILED = (
    "tests/replay/",
    "tests/schedule/columns/",
    "tests/schedule/test_compiled.py",
    "tests/cli/test_simulate.py",
    "tests/cli/test_imports.py",
    "tests/plan/test_capacity.py",
    # fmt: skip
    "tests/cli/planner/test_capacity.py",
    "tests/cli/planner/test_hints.py",
    f"{PAGE}[simulate]",
)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(COMPILED):
            item.add_marker(pytest.mark.xdist_group("compiled"))


def pytest_configure() -> None:
    """To collect makes a million objects and no garbage: no search for it until all are
    there, and those are never searched."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail the test that leaves another current folder behind, not one that runs after
    it."""
    yield
    root = item.config.invocation_params.dir
    if Path(os.getcwd()) != root:
        left = os.getcwd()
        os.chdir(root)
        pytest.fail(f"the test left the current folder at {left}", pytrace=False)


@pytest.fixture(scope="session")
def postgres() -> Iterator["Server"]:
    """A real server, started at the first test that asks and ended with the last."""
    from tests.postgres import patient, server

    with server() as one, patient():
        yield one


@pytest.fixture(scope="session")
def whole_slurm() -> Iterator["Slurm"]:
    """A real Slurm of four nodes, started at the first test that asks and ended with
    the last."""
    from tests.slurm import cluster

    with cluster() as one:
        yield one


@pytest.fixture
def slurm(whole_slurm: "Slurm") -> Iterator["Slurm"]:
    """The same, with nothing in its queue before the test and after it."""
    yield whole_slurm
    whole_slurm.clear()
