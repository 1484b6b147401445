"""The simulation can fail: rules taken out of the code, one at a time, are missed at
once."""

import pytest

from tests.simulate.mutant import Mutant
from tests.simulate.mutants import MUTANTS, breed, first_missed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name.replace(" ", "-"))
def test_a_rule_taken_out_is_missed(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one of the invariants that guard it, and not by whatever breaks next."""
    breed(mutant, monkeypatch)
    caught = first_missed(mutant, mutant.seed)
    assert caught is not None, f"{mutant.name}: {mutant.rules} held in every world"


def test_every_rule_taken_out_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
