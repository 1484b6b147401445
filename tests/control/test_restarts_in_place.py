"""The engine says whether an attempt may begin on the seats of the one before."""

from dataclasses import fields

import pytest

from corral.control import Control
from corral.engines.batch.engine import LendingEngine
from corral.engines.local.engine import LocalEngine
from corral.engines.ray.engine import RayEngine
from corral.store.memory_store import MemoryStore
from tests.control.test_control import HandClock, Notebook


@pytest.mark.parametrize("may", [True, False])
def test_the_head_asks_its_engine(may: bool) -> None:
    engine = Notebook(restarts_in_place=may)
    control = Control(store=MemoryStore(), engine=engine, clock=HandClock())
    assert control.facts.restarts_in_place is may


@pytest.mark.parametrize(
    ("engine", "may"),
    [(LocalEngine, True), (LendingEngine, False), (RayEngine, False)],
)
def test_engines_that_are_granted_seats_for_each_attempt_do_not(
    engine: type, may: bool
) -> None:
    defaults = {field.name: field.default for field in fields(engine)}
    assert defaults["restarts_in_place"] is may
