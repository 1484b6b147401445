"""Fifty worlds of faults: every invariant, at every commit and every start of a
rank.

`make soak` goes on from there with ten thousand more.
"""

import time
from pathlib import Path

import pytest

from corral.simulate.scenario import WorldOutcome, simulate
from corral.simulate.summary import WorldSums

WORLDS = 50
A_CHUNK = 25
SOAK_WORLDS = 10_000
KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "simulate-soak.md"


def told(outcome: WorldOutcome) -> str:
    last = "\n".join(outcome.lines)
    return (
        f"{last}\nseed {outcome.seed} broke {outcome.rule}: {outcome.text}\n"
        f"replay: python -m corral.simulate --seed {outcome.seed} --verbose"
    )


@pytest.mark.parametrize("first", range(0, WORLDS, A_CHUNK))
def test_no_invariant_is_ever_broken(first: int) -> None:
    for seed in range(first, first + A_CHUNK):
        outcome = simulate(seed)
        assert not outcome.rule, told(outcome)


# Worlds that once broke a rule, each by a fault of Corral that has been mended since.
FOUND = {
    28: "a job suspended while it waited for another that never ended as asked, for ever",
    65: "work was given to a node that had restarted, which no head knew yet",
    142: "the seat of a job that waits again was never let go",
    344: "an old head whose disk failed took the lead back from the new one",
    466: "the time that a head waited for its store counted as a node's silence",
    589: "a node obeyed a word from before its last boot",
    802: "a node was given up for a silence that began with the proof of its death",
    2110: "a gang that had waited long kept the node that others had just left for another",
    5815: "who had gone for seats given up since was not named when others were kept",
    6561: "seats kept for one were refused to it since its like had been refused before",
    108: "a promise was told to more of an array than may run at once, and ended when one began",
    893: "who was promised a start first went behind another when its node was lost",
    1605: "two of an array that may run one at a time took from each other what was kept",
    3185: "the promise of a whole node counted as its queue's own, and kept an owner from it",
    3643: "a promise was put off when who gave back its queue's share left no node of its own",
    9731: "one was promised a start before its like, which its own promise had kept from there",
    6230: "who had gone for seats that became a promise meanwhile was not named by who took them",
    906: "max_duration counted from the first rank of a gang, after the head's restart",
}


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_stays_mended(seed: int) -> None:
    outcome = simulate(seed)
    assert not outcome.rule, told(outcome)


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_no_invariant_is_broken_in_many_worlds() -> None:
    """Goes on after a breach, and keeps what it found in benchmarks/results."""
    began, tally = time.monotonic(), WorldSums()
    for seed in range(WORLDS, WORLDS + SOAK_WORLDS):
        tally.add(simulate(seed))
    said = tally.text(time.monotonic() - began)
    first, last = WORLDS, WORLDS + SOAK_WORLDS - 1
    day = time.strftime("%Y-%m-%d", time.gmtime())
    head = f"# The soak's simulated worlds, seeds {first} to {last}, {day}"
    KEPT.write_text(f"{head}\n\n```\n{said}\n```\n")
    print(said)
    assert not tally.broken, told(tally.broken[0])
