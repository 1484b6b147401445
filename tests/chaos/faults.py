"""Seeded schedule of the faults of a chaos run. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

HEAD: Final = "head"
NODES: Final = ("n1", "n2", "n3")
QUIET_SECONDS: Final = (2.0, 8.0)  # between the beginnings of two faults
AT_ONCE_SECONDS: Final = (0.0, 0.5)  # the same, of two that hit together
AT_ONCE: Final = 0.25  # share of faults that come together with the one before
FREEZE_SECONDS: Final = (1.0, 30.0)
FULL_SECONDS: Final = (20.0, 60.0)
HEAD_FULL_SECONDS: Final = (5.0, 20.0)  # nothing is acknowledged meanwhile
DOWN_SECONDS: Final = (0.0, 5.0)  # until somebody starts a killed head again
WEIGHTS: Final = {
    "kill head": 3,
    "kill head, two starts": 2,
    "two starts": 1,
    "kill agent": 3,
    "kill launcher": 3,
    "kill shim": 3,
    "kill rank": 3,
    "kill node": 3,
    "freeze head": 2,
    "freeze agent": 2,
    "freeze launcher": 2,
    "freeze shim": 2,
    "freeze rank": 2,
    "freeze node": 2,
    "full disk": 2,
    "full disk of head": 1,
    "backup": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A fault to inject after so many seconds. `seconds`: how long it lasts, or how
    long a head stays down. `chance` picks among the processes there are then."""

    kind: str
    after_seconds: float
    target: str
    seconds: float
    chance: float


def injections(seed: int) -> Iterator[Injection]:
    """Endless, and the same for the same seed. Each kind comes once before any comes
    again by weight, so that short runs have all of them."""
    chance = Random(f"faults {seed}")
    first = list(WEIGHTS)
    chance.shuffle(first)
    at = 2.0
    while True:
        kind = (
            first.pop()
            if first
            else chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        )
        at += chance.uniform(
            *AT_ONCE_SECONDS if chance.random() < AT_ONCE else QUIET_SECONDS
        )
        yield Injection(
            kind=kind,
            after_seconds=at,
            target=HEAD
            if kind.endswith(("head", "starts", "backup"))
            else chance.choice(NODES),
            seconds=chance.uniform(*_seconds_of(kind)),
            chance=chance.random(),
        )


def _seconds_of(kind: str) -> tuple[float, float]:
    if kind.startswith("freeze"):
        return FREEZE_SECONDS
    return {"full disk": FULL_SECONDS, "full disk of head": HEAD_FULL_SECONDS}.get(
        kind, DOWN_SECONDS
    )
