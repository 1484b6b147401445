"""Two minutes of random faults break nothing. `make chaos` goes on from there."""

from pathlib import Path

import pytest

from tests.chaos.checker import violations
from tests.chaos.run import run_seed


@pytest.mark.soak
@pytest.mark.parametrize("seed", [11])
def test_two_minutes_of_faults_break_nothing(seed: int, tmp_path: Path) -> None:
    history = run_seed(seed, 2.0, 1.0, tmp_path / "run")
    assert len(history.acknowledged) > 20
    assert len(history.faults) > 10
    assert violations(history) == []
