"""Rules taken out of the code, one at a time, as data: what is changed, and what must
be missed."""

import importlib
import inspect
import sys
import textwrap
from types import FunctionType
from typing import Any

import pytest

from corral.simulate.scenario import WorldOutcome, simulate
from tests.simulate.mutant import Mutant
from tests.simulate.mutants_giving import GIVING
from tests.simulate.mutants_health import HEALTH
from tests.simulate.mutants_moving import MOVING
from tests.simulate.mutants_promises import PROMISES
from tests.simulate.mutants_services import SERVICES
from tests.simulate.mutants_wishes import REQUESTS

MOST_WORLDS = 400  # so many are looked at before a rule is called unguarded


STORE = [
    Mutant(
        "a repeated submit makes another job",
        "store.memory_store:MemoryStore.add_request",
        "if key is not None and (by, key) in self._keys:",
        "if False:",
        "I1",
        seed=35,
    ),
    Mutant(
        "an old head goes on writing",
        "store.memory_store:MemoryStore.commit",
        "term != self._term",
        "False",
        "term",
        seed=3,
    ),
    Mutant(
        "a new head goes on from the first attempt",
        "store.memory_store:MemoryStore._load_job_into_world",
        "attempts[max(attempts)]",
        "attempts[min(attempts)]",
        "I10 I17",
        seed=2,
    ),
]

LEDGER = [
    Mutant(
        "what was out of reach is written down once more when it is let go",
        "reconcile.accounting:_charge_allocations",
        "or previous_allocation.charged",
        "",
        "ledger",
        seed=3,
    ),
    Mutant(
        "what is let go is not written down",
        "reconcile.reconcile_pass:reconcile",
        "write_down(draft)",
        "pass",
        "ledger",
    ),
]

CONTROL = [
    Mutant(
        "a cancel is acknowledged before it is granted",
        "control.control:Control.ask",
        "await self._granted.wait(self.world, request)",
        "pass",
        "I6",
        seed=2,
    ),
    Mutant(
        "what was not committed is believed",
        "control.control:Control._decide_and_commit",
        "await self.store.commit(self.world.term, changes)",
        "await self.store.commit(self.world.term, "
        "__import__('dataclasses').replace(changes, saves=()))",
        "I12",
        seed=5,
    ),
    Mutant(
        "a head goes on with its old world after a commit has failed",
        "control.control:Control._reload_world",
        "self._must_load = True",
        "return",
        "I3 I8",
        seed=87,
    ),
    Mutant(
        "the time before a head began counts as silence",
        "control.head_clocks:ServingClock.__init__",
        "self._seconds = 0.0",
        "self._seconds = 60.0",
        "I7",
        seed=2,
    ),
    Mutant(
        "a pause of the head counts as silence",
        "control.head_clocks:ServingClock.read",
        "min(max(0.0, monotonic - self._at), LONGEST_GAP_SECONDS)",
        "max(0.0, monotonic - self._at)",
        "I7",
        seed=29,
    ),
    Mutant(
        "a proof of death outlives the death",
        "control.control:Control._observe_engine",
        "self.facts, self.world, self.engine.observe(), self.engine.gone()",
        "self.facts, self.world, {**self.facts.proofs, **self.engine.observe()}, "
        "self.engine.gone()",
        "I10",
        seed=3,
    ),
    Mutant(
        "words have no version of their own",
        "control.desired_versions:Book.renewed",
        "self._counter += 1",
        "pass",
        "I10",
        seed=19,
    ),
    Mutant(
        "a takeover does not raise the term of its words",
        "control.desired_versions:Book.renewed",
        "Version(term=world.term, counter=self._counter)",
        "Version(term=1, counter=self._counter)",
        "I10",
        seed=5,
    ),
    Mutant(
        "jobs are looked at only when somebody speaks of them",
        "control.control:Control._take_touched",
        "serving - self._looked_at_all >= LOOK_AT_ALL_SECONDS",
        "False",
        "I10",
        seed=49,
    ),
]

SILENCE = [
    Mutant(
        "silence is death without a bound",
        "health.liveness:_judge_liveness",
        "past_bound=silent - excused >= BOUND_SECONDS and not frozen",
        "past_bound=True",
        "I7",
        seed=3,
    ),
    Mutant(
        "many that are silent together are given up",
        "health.liveness:_gone_together",
        "len(silent) < fewest",
        "True",
        "I7",
        seed=20,
    ),
    Mutant(
        "who would wait is replaced",
        "reconcile.nodes:_may_replace",
        "return False",
        "return True",
        "I7 I2",
        seed=64,
    ),
    Mutant(
        "a gang that steps on is replaced",
        "reconcile.nodes:_others_step_on",
        "return stepped > went_silent",
        "return False and stepped > went_silent",
        "I7",
        seed=99,
    ),
]

RECONCILE = [
    Mutant(
        "GPUs return at once",
        "reconcile.attempts:_update_ending_job",
        "if seat_report.is_over and not keeps_seats:",
        "if True:",
        "I8",
        seed=3,
    ),
    Mutant(
        "GPUs of a replaced attempt return when nobody speaks of it",
        "reconcile.stale_allocations:see_stale",
        "if attempt_report is not None and",
        "if attempt_report is None or",
        "I8 I17",
        seed=79,
    ),
    Mutant(
        "GPUs of a replaced attempt never return",
        "reconcile.stale_allocations:see_stale",
        "draft.seat_to(allocation, SeatState.RELEASED)",
        "pass",
        "I10",
        seed=8,
    ),
    Mutant(
        "a failed gang is retried before its ranks are seen gone",
        "reconcile.attempt_end:conclude",
        "seat_states <= {SeatState.UNREACHABLE}",
        "True",
        "I7 I2",
        seed=3,
    ),
    Mutant(
        "a job is called stopped while it may run",
        "reconcile.attempt_end:conclude",
        "job.state == JobState.STOPPING and not seat_states",
        "job.state == JobState.STOPPING",
        "I7 I8 I2",
        seed=29,
    ),
    Mutant(
        "requests are skipped after they were acknowledged",
        "reconcile.apply_requests:grant",
        "draft.granted = request.sequence",
        "draft.granted = request.sequence + 1",
        "I1 bug I10",
    ),
    Mutant(
        "a cancel is forgotten",
        "reconcile.apply_requests:_stop_job",
        "if job is None:",
        "if job is None or why == StopWhy.CANCEL and job.state == 'RUNNING':",
        "I6",
        seed=7,
    ),
    Mutant(
        "a cancel does not beat another reason to stop",
        "reconcile.apply_requests:_stop_job",
        "or why == StopWhy.CANCEL",
        "",
        "I6",
        seed=160,
    ),
    Mutant(
        "a job does not wait for another",
        "reconcile.apply_requests:_submit_jobs",
        "JobState.HELD if dependencies or later else JobState.QUEUED",
        "JobState.QUEUED",
        "after",
        seed=4,
    ),
    Mutant(
        "a job waits for what can no longer happen",
        "reconcile.dependencies:never",
        "return dependency",
        "continue",
        "I10",
        seed=3,
    ),
    Mutant(
        "a resumed job begins from its oldest save",
        "reconcile.attempt_begin:begin_attempt",
        "saves[-1].step",
        "saves[0].step",
        "I12",
        seed=3,
    ),
    Mutant(
        "an end is settled before it is recorded",
        "reconcile.desired_state:wanted_of",
        "if attempt_report.key in attempt_keys or",
        "if",
        "I7 I17 I5 I10 I14",
    ),
    Mutant(
        "max_duration is counted by a clock that can be set",
        "reconcile.attempts:ran_seconds",
        "return min(ran, default=0.0) if reports else 0.0",
        "return by_wall",
        "I7",
        seed=32,
    ),
    Mutant(
        "the schedule forgets what is held",
        "reconcile.cache.capacity:CapacityCache._build_room",
        "_occupy_seat(draft, room, allocation)",
        "pass",
        "bug I3",
    ),
    Mutant(
        "cordoned nodes take work",
        "reconcile.cache.capacity:CapacityCache._build_room",
        "node.takes_work",
        "node.liveness == 'alive'",
        "cordon",
        seed=2,
    ),
]

CHARGES = [
    Mutant(
        "the cluster's faults eat the user's retries",
        "reconcile.attempt_end:_charge_infra",
        "replace(job, infra_retries=job.infra_retries + 1)",
        "replace(job, user_retries=job.user_retries + 1)",
        "I17",
        seed=1,
    ),
    Mutant(
        "a job is tried again for ever when nodes are lost",
        "reconcile.attempt_end:_charge_infra",
        "job.infra_retries >= job.spec.retry.infra",
        "False",
        "I17",
        seed=16,
    ),
    Mutant(
        "a job that fails is tried again for ever",
        "reconcile.attempt_end:_charge_user",
        "job.user_retries >= job.spec.retry.user",
        "False",
        "I17",
        seed=1,
    ),
    Mutant(
        "a crash loop goes on",
        "reconcile.attempt_end:_charge_user",
        "fruitless >= CRASH_LOOP",
        "False",
        "I17",
        seed=1,
    ),
    Mutant(
        "the last who failed is to blame",
        "health.gang_failure:failure_of",
        "min(\n",
        "max(\n",
        "I14 I5 I17",
        seed=19,
    ),
    Mutant(
        "who ended last is to blame",
        "health.gang_failure:failure_of",
        "== FailureKind.UNKNOWN, one.at,",
        "== FailureKind.UNKNOWN, -one.at,",
        "I14 I5 I17",
        seed=1,
    ),
    Mutant(
        "a rank that misses its peers explains a lost node",
        "reconcile.attempts:blame",
        "is_explained and (cause",
        "False and (cause",
        "I17 I14",
        seed=3,
    ),
    Mutant(
        "the recorded exit code is not the true one",
        "reconcile.attempts:_finish_attempt",
        "reason=doubt.reason,\n        exit_code=0",
        "reason=doubt.reason,\n        exit_code=1",
        "I5",
    ),
]

SCHEDULE = [
    Mutant(
        "a part of a gang is placed",
        "schedule.placement.gang_placement:_gather_seats",
        "if len(seats) == shape.nodes:",
        "if seats:",
        "I9",
    ),
    Mutant(
        "an array runs beyond its limit",
        "schedule.decide:_array_is_full",
        "running + coming < gang.array_limit",
        "True",
        "array",
        seed=1,
    ),
    Mutant(
        "the youngest goes first",
        "reconcile.placement:waiting_of",
        "order=(job.submitted,",
        "order=(-job.submitted,",
        "I10",
        seed=47,
    ),
    Mutant(
        "a port is given twice",
        "schedule.capacity.node_room:NodeRoom.take_port",
        "self.free_ports.pop(0)",
        "self.free_ports[0]",
        "I3",
    ),
]

AGENT = [
    Mutant(
        "an agent obeys an older word",
        "simulate.agent:SimulatedAgent.may_obey",
        "and wanted.version >= disk.version",
        "",
        "I7 I8 I2 I17 I10 I3 bug",
        seed=43,
    ),
    Mutant(
        "a node obeys a word from before its last boot",
        "simulate.agent:SimulatedAgent.may_obey",
        'wanted.boot not in ("", self.boot)',
        "False",
        "I8 I2 I7 I17",
        seed=283,
    ),
    Mutant(
        "an agent does not stop what asked for it when the head is silent",
        "simulate.agent:SimulatedAgent._overdue_stops",
        "if limit is None:",
        "if True:",
        "I7 I2",
        seed=387,
    ),
    Mutant(
        "an agent tells no end",
        "simulate.agent:SimulatedAgent.seen",
        "for journal in journals.values()",
        "for journal in journals.values() if not journal.is_over(self.boot)",
        "I7 I17 I10 I14",
    ),
    Mutant(
        "a word that is repeated starts the attempt again",
        "simulate.agent:SimulatedAgent.obey",
        "launch.key not in present and",
        "",
        "bug",
    ),
    Mutant(
        "a stop of what is not there has no answer",
        "simulate.agent:SimulatedAgent._stop",
        'self._shims.refuse(stop.key, "the attempt is not on this node", infra=True)',
        "pass",
        "I10",
        seed=21,
    ),
    Mutant(
        "an agent that returns does not find lost shims",
        "simulate.shims:Shims.find_lost",
        "if not node_attempt.shim_lives:",
        "if False:",
        "I10",
        seed=6,
    ),
    Mutant(
        "a rank that ignores TERM is left alone",
        "simulate.ranks:NodeAttempt._kill_if_due",
        "self.kill()",
        "pass",
        "I10",
        seed=8,
    ),
    Mutant(
        "a node forgets that it restarted",
        "simulate.disk:SimulatedJournal.is_over",
        "or self.boot != boot",
        "",
        "I10 I7 I17",
        seed=11,
    ),
]

FORGETTING = [
    Mutant(
        "a job that another waits for is forgotten",
        "reconcile.job_retention:_referenced_jobs",
        "yield from job.spec.needs",
        "pass",
        "forget",
        seed=1,
    ),
    Mutant(
        "a job that still holds a node is forgotten",
        "reconcile.job_retention:_referenced_jobs",
        "yield from (allocation.job for allocation in draft.held())",
        "pass",
        "forget bug",
        seed=307,
    ),
    Mutant(
        "more are forgotten than are too many",
        "reconcile.job_retention:forget",
        "age_rank < too_many",
        "age_rank <= too_many",
        "forget",
        seed=1,
    ),
    Mutant(
        "nothing is ever forgotten",
        "reconcile.job_retention:forget",
        "too_many <= 0",
        "True",
        "I10",
        seed=1,
    ),
]

MUTANTS = [
    *STORE, *CONTROL, *SILENCE, *RECONCILE, *CHARGES, *SCHEDULE, *GIVING, *AGENT, *FORGETTING,
    *REQUESTS, *MOVING, *PROMISES, *LEDGER, *HEALTH, *SERVICES,
]  # fmt: skip


def breed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the changed function where every module has the real one."""
    module_name, _, path = mutant.where.partition(":")
    module = importlib.import_module(f"corral.{module_name}")
    owner: Any = module
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    real: FunctionType = getattr(owner, name)
    text = textwrap.dedent(inspect.getsource(real))
    assert text.count(mutant.old) == 1, f"{mutant.where} no longer says {mutant.old!r}"
    scope: dict[str, object] = {}
    exec(text.replace(mutant.old, mutant.new), vars(module), scope)
    monkeypatch.setattr(owner, name, scope[name])
    for other in [
        one for known, one in sys.modules.items() if known.startswith("corral.")
    ]:
        if getattr(other, name, None) is real:
            monkeypatch.setattr(other, name, scope[name])


def first_missed(mutant: Mutant, seed: int) -> WorldOutcome | None:
    """The first world from `seed` on, of MOST_WORLDS, that breaks one of the mutant's
    rules."""
    rules = mutant.rules.split()
    worlds = (simulate(number) for number in range(seed, seed + MOST_WORLDS))
    return next((outcome for outcome in worlds if outcome.rule in rules), None)
