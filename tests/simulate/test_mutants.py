"""The simulation can fail: rules taken out of the code, one at a time, are missed at once.

A mutant is a piece of a function's text and what stands there instead. It must be caught within a
bounded number of worlds, by one of the invariants that guard what was taken out.
"""

import importlib
import inspect
import textwrap
from dataclasses import dataclass

import pytest

from corral.simulate.scene import simulate

MOST_WORLDS = 60


@dataclass(frozen=True, slots=True)
class Mutant:
    """`where` is module:function or module:Class.method below corral."""

    name: str
    where: str
    old: str
    new: str


MUTANTS = [
    Mutant(
        "GPUs return at once",
        "reconcile.attempts:_ending",
        "if part.is_over:",
        "if True:",
    ),
    Mutant(
        "a failed gang is retried before its ranks are seen gone",
        "reconcile.conclude:conclude",
        "left <= {SeatState.UNREACHABLE}",
        "True",
    ),
    Mutant(
        "a job is called stopped while it may run",
        "reconcile.conclude:conclude",
        "job.state == JobState.STOPPING and not left",
        "job.state == JobState.STOPPING",
    ),
    Mutant(
        "silence is death without a bound",
        "health.liveness:_verdict",
        "past_bound=silent - excused >= BOUND_SECONDS and not frozen",
        "past_bound=True",
    ),
    Mutant(
        "who would wait is replaced",
        "reconcile.nodes:_may_replace",
        "return False",
        "return True",
    ),
    Mutant(
        "an agent obeys a word that is older than one it knows",
        "simulate.agent:SimulatedAgent.may_obey",
        "and wanted.version >= disk.version",
        "",
    ),
    Mutant(
        "wishes are skipped after they were acknowledged",
        "reconcile.grant:grant",
        "draft.granted = wish.sequence",
        "draft.granted = wish.sequence + 1",
    ),
    Mutant(
        "the cluster's faults eat the user's retries",
        "reconcile.conclude:_charge_infra",
        "replace(job, infra_retries=job.infra_retries + 1)",
        "replace(job, user_retries=job.user_retries + 1)",
    ),
    Mutant(
        "the recorded exit code is not the true one",
        "reconcile.attempts:_finish",
        "replace(moved, exit_code=0",
        "replace(moved, exit_code=1",
    ),
    Mutant(
        "an old head goes on writing",
        "store.memory:MemoryStore.commit",
        "term != self._term",
        "False",
    ),
    Mutant(
        "a cancel is forgotten",
        "reconcile.grant:_stop",
        "if job is None:",
        "if job is None or why == StopWhy.CANCEL and job.state == 'RUNNING':",
    ),
]


def breed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the changed function where every module has the real one."""
    module_name, _, path = mutant.where.partition(":")
    module = importlib.import_module(f"corral.{module_name}")
    owner = module
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    real = getattr(owner, name)
    text = textwrap.dedent(inspect.getsource(real))
    assert text.count(mutant.old) == 1, f"{mutant.where} no longer says {mutant.old!r}"
    scope: dict[str, object] = {}
    exec(text.replace(mutant.old, mutant.new), vars(module), scope)
    monkeypatch.setattr(owner, name, scope[name])
    for other in ("reconcile.loop", "reconcile.nodes", "reconcile.orders"):
        place = importlib.import_module(f"corral.{other}")
        if getattr(place, name, None) is real:
            monkeypatch.setattr(place, name, scope[name])


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name.replace(" ", "-"))
def test_a_rule_taken_out_is_missed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    breed(mutant, monkeypatch)
    caught = next((o for seed in range(MOST_WORLDS) if (o := simulate(seed)).rule), None)
    assert caught is not None, f"{mutant.name}: nothing broke in {MOST_WORLDS} worlds"
    print(f"{mutant.name}: {caught.rule} in world {caught.seed}: {caught.text}")
