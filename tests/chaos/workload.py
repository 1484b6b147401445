"""Seeded generator of the jobs of a chaos run. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from tests.chaos.history import Planned

CODES: Final = (0, 0, 0, 3, 5, 9, 21)
ARRAY: Final = 3
RECENT: Final = 8  # submissions back to the job that an `after` names, at most
BATCH: Final = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --time=10
{line}
exit {code}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Paths of a run, as its ranks see them, and the Python that runs them."""

    python: str
    program: str
    evidence: str
    saves: str

    def rank(self, *words: object) -> str:
        return " ".join(
            [self.python, "-S", "-E", self.program, self.evidence, *map(str, words)]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One request. `plans` are its jobs in the order of the answer. A batch script is
    `script`, and then `spec` is empty."""

    key: str
    spec: dict[str, Any]
    plans: tuple[Planned, ...]
    script: str = ""


Kind = Callable[[Random, str, Place], Submission]


def submissions(seed: int, place: Place) -> Iterator[Submission]:
    """Endless, and the same for the same seed."""
    chance = Random(f"jobs {seed}")
    recent: list[Planned] = []
    for number in range(1, 1_000_000):
        kind = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        name = f"{kind.__name__.strip('_')}-{seed}-{number}"
        made = kind(chance, name, place)
        if recent and not made.script and chance.random() < 0.07:
            parent = chance.choice(recent).name
            made = replace(
                made, plans=tuple(replace(one, after=parent) for one in made.plans)
            )
        yield made
        recent = [*recent, *made.plans][-RECENT:]


def _one(plan: Planned, run: str, **more: Any) -> Submission:
    resources = {"gpu": plan.gpus, "cpu": 0.01}
    spec = {
        "name": plan.name,
        "run": run,
        "resources": resources,
        "nodes": plan.nodes,
    } | more
    spec |= {"grace": f"{plan.grace_seconds:g}s", "retry": {"user": plan.user_retries}}
    return Submission(key=plan.name, spec=spec, plans=(plan,))


def _shell(chance: Random, name: str, place: Place) -> Submission:
    """A command that is over at once and leaves no evidence: its code is in its plan
    alone."""
    code = chance.choice(CODES)
    plan = Planned(name=name, kind="shell", code=code, gpus=1, has_evidence=False)
    return _one(plan, f"exit {code}" if code else "true")


def _code(chance: Random, name: str, place: Place) -> Submission:
    code = chance.choice(CODES)
    plan = Planned(name=name, kind="code", code=code, gpus=1)
    seconds = round(chance.uniform(0.0, 7.0), 1)
    return _one(plan, place.rank("--seconds", seconds, "--code", code))


def _gang(chance: Random, name: str, place: Place) -> Submission:
    code = chance.choice((0, 0, 6))
    plan = Planned(name=name, kind="gang", code=code, gpus=1, nodes=2)
    seconds = round(chance.uniform(0.0, 6.0), 1)
    return _one(plan, place.rank("--seconds", seconds, "--code", code))


def _batch(chance: Random, name: str, place: Place) -> Submission:
    """A batch script; its own code differs from that of its step."""
    code, nodes = chance.choice((0, 0, 8)), chance.choice((1, 2))
    plan = Planned(name=name, kind="batch", code=code, gpus=1, nodes=nodes)
    rank = place.rank("--seconds", round(chance.uniform(0.0, 4.0), 1))
    line = f"srun {rank}" if chance.random() < 0.7 else rank
    text = BATCH.format(name=name, nodes=nodes, line=line, code=code)
    return Submission(key=name, spec={}, plans=(plan,), script=text)


def _array(chance: Random, name: str, place: Place) -> Submission:
    plans = tuple(
        Planned(name=f"{name}_{index}", kind="array", gpus=1, code=index)
        for index in range(ARRAY)
    )
    run = (
        place.rank("--seconds", round(chance.uniform(0.0, 2.0), 1))
        + " --code $SLURM_ARRAY_TASK_ID"
    )
    spec = _one(plans[0], run, array=f"0-{ARRAY - 1}", name=name).spec
    return Submission(key=name, spec=spec, plans=plans)


def _saves(chance: Random, name: str, place: Place) -> Submission:
    steps, code = chance.randint(16, 140), chance.choice((0, 0, 0, 4))
    plan = Planned(name=name, kind="saves", code=code, gpus=1, saves=True)
    checkpoint = {"path": f"{place.saves}/{name}"}
    return _one(
        plan, place.rank("--steps", steps, "--code", code), checkpoint=checkpoint
    )


def _limit(chance: Random, name: str, place: Place) -> Submission:
    limit, nodes = float(chance.randint(2, 7)), chance.choice((1, 1, 1, 2))
    plan = Planned(name=name, kind="limit", gpus=1, nodes=nodes, limit_seconds=limit)
    return _one(plan, place.rank("--seconds", 600), max_duration=f"{limit:g}s")


def _cancel(chance: Random, name: str, place: Place) -> Submission:
    after = round(chance.uniform(0.0, 8.0), 1)
    plan = Planned(name=name, kind="cancel", gpus=1, cancel_after=after)
    return _one(plan, place.rank("--seconds", 20))


def _retry(chance: Random, name: str, place: Place) -> Submission:
    fails = chance.randint(2, 3)
    plan = Planned(name=name, kind="retry", gpus=1, user_retries=9, fails_before=fails)
    seconds = round(chance.uniform(0.0, 1.5), 1)
    return _one(plan, place.rank("--seconds", seconds, "--fails-before", fails))


WEIGHTS: Final[dict[Kind, float]] = {
    _shell: 0.28,
    _code: 0.22,
    _gang: 0.08,
    _batch: 0.06,
    _array: 0.05,
    _saves: 0.12,
    _limit: 0.06,
    _cancel: 0.07,
    _retry: 0.06,
}
