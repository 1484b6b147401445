"""Worlds in which gangs restart in place: on the very seats that they had, and paid by
one budget."""

import pytest

from corral.simulate.oracles.in_place import InPlaceOracle
from corral.simulate.scenario import simulate
from tests.simulate.mutant import Mutant
from tests.simulate.mutants import breed, first_missed
from tests.simulate.mutants_in_place import IN_PLACE
from tests.simulate.test_worlds import told

FIRST, WORLDS = 7_000_000, 12


def test_no_invariant_is_ever_broken_by_a_restart_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restarts = 0
    check_restart = InPlaceOracle._check_restart

    def count(self: InPlaceOracle, *restart: object) -> None:
        nonlocal restarts
        restarts += 1
        check_restart(self, *restart)  # type: ignore[arg-type]

    monkeypatch.setattr(InPlaceOracle, "_check_restart", count)
    for seed in range(FIRST, FIRST + WORLDS):
        outcome = simulate(seed)
        assert not outcome.rule, told(outcome)
    assert restarts > WORLDS // 2


@pytest.mark.parametrize("mutant", IN_PLACE, ids=lambda one: one.name.replace(" ", "-"))
def test_a_rule_taken_out_is_missed(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    breed(mutant, monkeypatch)
    caught = first_missed(mutant, mutant.seed)
    assert caught is not None, f"{mutant.name}: {mutant.rules} held in every world"
