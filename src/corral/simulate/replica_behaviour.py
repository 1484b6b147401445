"""Behaviour of the replicas of each revision, drawn when a replica is made."""

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from corral.simulate.rank_behaviour import RankBehaviour, draw_failure

ENDLESS_STEPS = 10**9


class RevisionKind(StrEnum):
    """Behaviour that all replicas of one revision share. It is part of their
    command."""

    GOOD = "good"
    CRASHES = "crashes"  # with an error, before it is ready
    EXITS = "exits"  # without an error, before it is ready
    SILENT = "silent"  # runs, but is never ready


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeBehaviour:
    """Answers of a replica to its agent's probe. Times are seconds after the start of
    an attempt.

    Args:
        ready_seconds: When it begins to answer; None: it never does.
        silent_spans: Begin and end of spans without an answer.
        outlives_seconds: For how long another process answers in its place after it
            has died.
    """

    ready_seconds: float | None
    silent_spans: tuple[tuple[float, float], ...] = ()
    outlives_seconds: float = 0.0

    def answers(self, ran_seconds: float, dead_seconds: float | None) -> bool:
        """Return whether the probe is answered.

        Args:
            ran_seconds: Time from the start of the attempt until now, or its end.
            dead_seconds: Time since its end; None: it runs.
        """
        if self.ready_seconds is None or ran_seconds < self.ready_seconds:
            return False
        if dead_seconds is not None:
            return dead_seconds < self.outlives_seconds
        return not any(begin <= ran_seconds < end for begin, end in self.silent_spans)


def command_of(kind: RevisionKind, number: int) -> str:
    """Return the command of a revision. `number` makes it differ from all others."""
    return f"python serve.py {kind} {number}"


def kind_of(command: str) -> RevisionKind:
    """Return the kind of the revision with this command."""
    return RevisionKind(command.split()[2])


def draw_replica(
    chance: Random, kind: RevisionKind, *, is_calm: bool
) -> tuple[RankBehaviour, ProbeBehaviour]:
    """Return the behaviour of one replica. `is_calm`: a good one runs for ever, and
    always answers once it is ready."""
    ready_seconds = chance.choice([0.5, 2.0, 5.0, 12.0])
    steps, failures, fails_after_steps = ENDLESS_STEPS, 0, 0
    silent_spans: tuple[tuple[float, float], ...] = ()
    match kind:
        case RevisionKind.CRASHES:
            failures, fails_after_steps = 1, chance.randint(0, 2)
        case RevisionKind.EXITS:
            steps = chance.randint(1, 3)
        case RevisionKind.GOOD if not is_calm:
            if chance.random() < 0.15:
                failures, fails_after_steps = 1, chance.randint(3, 40)
            elif chance.random() < 0.05:
                steps = chance.randint(3, 40)
            if chance.random() < 0.2:
                silent_spans = _draw_spans(chance)
    life = RankBehaviour(
        steps=steps,
        step_seconds=1.0,
        save_every=0,
        save_seconds=0.0,
        failures=failures,
        fails_after_steps=fails_after_steps,
        failure=draw_failure(chance),
        ignores_term=chance.random() < 0.1,
        stop_seconds=chance.uniform(0.05, 1.0),
        hangs_without_peers=chance.random() < 0.4,
        prepare_seconds=chance.choice([0.01, 0.2, 1.5]),
        refused_once=chance.random() < 0.03,
        corrupt_saves=frozenset(),
        reports_steps=False,
    )
    probe = ProbeBehaviour(
        ready_seconds=ready_seconds if kind == RevisionKind.GOOD else None,
        silent_spans=silent_spans,
        outlives_seconds=chance.choice([0.0, 0.0, 3.0, 8.0]),
    )
    return life, probe


def _draw_spans(chance: Random) -> tuple[tuple[float, float], ...]:
    begins = [chance.uniform(3.0, 40.0) for _ in range(chance.randint(1, 3))]
    return tuple((begin, begin + chance.uniform(0.5, 6.0)) for begin in begins)
