"""Every engine makes the same statements true, each with its real component."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.contracts.engines import kubernetes, local, ray, slurm
from tests.contracts.engines.landlord import Landlord, Tenant, tenant_of

ENGINES: dict[str, Callable[[], AbstractContextManager[Landlord]]] = {
    "local": local.landlord,
    "kubernetes": kubernetes.landlord,
    "ray": ray.landlord,
    "slurm": slurm.landlord,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine", action="append", help="of this engine alone; may be repeated"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "landlord" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--engine", default=None)
        names = [name for name in ENGINES if not asked or name in asked]
        short = metafunc.module.__name__.endswith("test_users")
        marked = [pytest.param(name, marks=_marks(name, short=short)) for name in names]
        metafunc.parametrize("landlord", marked, indirect=True, scope="session")


def _marks(name: str, *, short: bool) -> list[pytest.MarkDecorator]:
    """One worker has the whole of an engine. All but local are long: a job of theirs
    each. `short`: statements that are few jobs on each engine."""
    group = pytest.mark.xdist_group(f"engine-{name}")
    return [group] if short or name == "local" else [group, pytest.mark.soak]


@pytest.fixture(scope="session")
def landlord(request: pytest.FixtureRequest) -> Iterator[Landlord]:
    with ENGINES[request.param]() as made:
        yield made


@pytest.fixture
def tenant(landlord: Landlord, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    function = request.node.originalname
    if why := landlord.exceptions.get(function):
        pytest.xfail(f"{landlord.name}: {why}")
    with tenant_of(landlord) as made:
        yield made
