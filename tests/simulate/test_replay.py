"""One seed is one world, to the last event, in every process."""

import gc
import os
import subprocess
import sys
import weakref

import pytest

from corral.simulate import __main__ as command
from corral.simulate.scenario import Scene, simulate
from tests.patience import PATIENCE_SECONDS

SEEDS = (3, 17, 70)


def test_the_same_seed_is_the_same_world_and_another_is_another() -> None:
    digests = [simulate(seed).digest for seed in SEEDS]
    assert [simulate(seed).digest for seed in SEEDS] == digests
    assert len(set(digests)) == len(SEEDS)


def test_a_world_does_not_depend_on_the_process_that_runs_it() -> None:
    """The order of sets and dictionaries of strings differs between these two."""
    program = (
        "from corral.simulate.scenario import simulate; "
        f"print([simulate(s).digest for s in {SEEDS}])"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]


def test_the_command_says_how_much_was_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulate", "--seeds", "3"])
    assert command.main() == 0
    assert "3 worlds" in capsys.readouterr().out


def test_a_breach_is_told_with_its_last_events_and_the_way_to_replay_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from corral.simulate.auditor import Auditor

    monkeypatch.setattr(
        Auditor, "still_there", lambda self: self.books.breach("I1", "made up")
    )
    monkeypatch.setattr(sys, "argv", ["simulate", "--seeds", "3", "--first", "5"])
    assert command.main() == 1
    said = capsys.readouterr().out
    assert "seed 5 broke I1: made up" in said
    assert "replay: python -m corral.simulate --seed 5 --verbose" in said
    assert "is DONE" in said


def test_nothing_of_a_world_outlives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Scene]] = []

    class Watched(Scene):
        def __init__(self, seed: int, *, verbose: bool) -> None:
            super().__init__(seed, verbose=verbose)
            made.append(weakref.ref(self))

    monkeypatch.setattr("corral.simulate.scenario.Scene", Watched)
    for seed in range(8):
        simulate(seed)
    gc.collect()
    assert len(made) == 8
    assert not [one for one in made if one() is not None]
