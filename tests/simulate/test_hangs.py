"""Worlds with jobs that hang, among faults: each hang is real when it is acted on, names
the true rank or none, and the right budget pays."""

import pytest

from corral.simulate.oracles.hangs import HangOracle
from corral.simulate.scenario import simulate
from corral.simulate.world import FIRST_WITH_HANGS
from tests.simulate.mutant import Mutant
from tests.simulate.mutants import breed, first_missed
from tests.simulate.mutants_hangs import HANGS
from tests.simulate.test_worlds import told

WORLDS = 16


def test_no_invariant_is_ever_broken_with_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = 0
    check_hang = HangOracle._check_hang

    def count(self: HangOracle, *hang: object) -> None:
        nonlocal recorded
        recorded += 1
        check_hang(self, *hang)  # type: ignore[arg-type]

    monkeypatch.setattr(HangOracle, "_check_hang", count)
    for seed in range(FIRST_WITH_HANGS, FIRST_WITH_HANGS + WORLDS):
        outcome = simulate(seed)
        assert not outcome.rule, told(outcome)
    assert recorded > WORLDS


@pytest.mark.parametrize("mutant", HANGS, ids=lambda one: one.name.replace(" ", "-"))
def test_a_rule_taken_out_is_missed(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    breed(mutant, monkeypatch)
    caught = first_missed(mutant, mutant.seed)
    assert caught is not None, f"{mutant.name}: {mutant.rules} held in every world"
