"""Behaviour of the ranks of each job, drawn when the job is created."""

from dataclasses import dataclass, replace
from random import Random

from corral.domain.attempt import Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBehaviour:
    """Simulated training loop of one job. It fails by itself `failures` times, each
    time after `fails_after_steps` steps of an attempt.

    The other fields give its saves, what it does on SIGTERM, and what its ranks do when
    another rank is gone.
    """

    steps: int
    step_seconds: float
    save_every: int  # steps; 0 never saves
    save_seconds: float
    failures: int
    fails_after_steps: int
    failure: Exit
    ignores_term: bool
    stop_seconds: float
    hangs_without_peers: bool
    prepare_seconds: float
    refused_once: bool  # the node's disk is full at the first try
    # saves of these steps turn out broken when they are read
    corrupt_saves: frozenset[int]
    reports_steps: bool = True


def draw_life(chance: Random, *, saves: bool) -> RankBehaviour:
    failing = chance.random() < 0.3
    steps = chance.randint(2, 36)
    return RankBehaviour(
        steps=steps,
        step_seconds=chance.choice([0.3, 1.0, 1.0, 2.0]),
        save_every=chance.randint(1, 5) if saves else 0,
        save_seconds=chance.choice([0.05, 0.4, 1.5]),
        failures=chance.choice([1, 1, 2, 5]) if failing else 0,
        fails_after_steps=chance.randint(0, steps - 1),
        failure=draw_failure(chance),
        ignores_term=chance.random() < 0.2,
        stop_seconds=chance.uniform(0.05, 1.0),
        hangs_without_peers=chance.random() < 0.4,
        prepare_seconds=chance.choice([0.01, 0.2, 1.5]),
        refused_once=chance.random() < 0.05,
        corrupt_saves=frozenset(chance.sample(range(1, steps + 1), 1))
        if chance.random() < 0.1
        else frozenset(),
    )


def longer(life: RankBehaviour) -> RankBehaviour:
    """Return a changed copy of the behaviour: the job runs 40 steps longer, does not
    fail by itself, and saves often. Other jobs can then start and end meanwhile."""
    return replace(
        life, steps=life.steps + 40, failures=0, save_every=min(life.save_every, 2)
    )


def draw_failure(chance: Random) -> Exit:
    if chance.random() < 0.3:
        return Exit(signal=chance.choice([6, 11]))
    return Exit(code=chance.choice([1, 2, 3, 42]))
