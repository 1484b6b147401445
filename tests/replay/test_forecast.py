"""The present played forward goes on as the whole would have; and what is drawn has
bounds."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.replay.array_replay import state_of_workload, world_of
from corral.replay.array_world import (
    NOW,
    SUBMITTED,
    ReplayWorld,
    advance_to,
    advance_until_started,
    log_of,
)
from corral.replay.forecast import Arrivals, clone, draw_seconds, present_of, waits
from corral.replay.rng import roll
from corral.replay.workload import Workload
from corral.schedule.arrays.compiled import column
from corral.schedule.arrays.hazard import LEVELS
from corral.schedule.columns.job_groups import WAITING
from corral.schedule.columns.order import DEFAULT, POLICIES, Named
from corral.schedule.columns.runtime_model import history_of, learn_end, relearn
from corral.schedule.columns.state import PassState
from tests.replay.workloads import NODES, workloads

LOG = log_of(gpus=0, is_kept=False)
LATE = 1e12


@dataclass(frozen=True, kw_only=True)
class Paused:
    """A replay that has stopped right after a submission."""

    named: Named
    world: ReplayWorld
    state: PassState

    @property
    def now(self) -> float:
        return float(self.world.number[NOW])

    @property
    def waiting(self) -> list[int]:
        rows = range(self.world.count[SUBMITTED])
        return [row for row in rows if self.state.jobs.state[row] == WAITING]


def paused(work: Workload, name: str, jobs: int) -> Paused:
    named = POLICIES[name]
    world, state = world_of(work), state_of_workload(work, NODES, named)
    advance_to(named.policy, world, state, LOG, jobs)
    return Paused(named=named, world=world, state=state)


def start_of(at: Paused, job: int) -> float:
    return advance_until_started(at.named.policy, at.world, at.state, LOG, job, LATE)


def alone(at: Paused, work: Workload) -> tuple[Paused, list[int]]:
    """The jobs of the present, and those to come, with their true lengths."""
    state, rows = present_of(at.named.policy, at.state)
    rows += range(at.world.count[SUBMITTED], len(work.submits))
    world = world_of(
        Workload(
            submits=[work.submits[row] for row in rows],
            durations=[work.durations[row] for row in rows],
            gpus=[work.gpus[row] for row in rows],
            queues=[work.queues[row] for row in rows],
        )
    )
    world.number[NOW] = at.now
    world.count[SUBMITTED] = len(rows) - len(work.submits) + at.world.count[SUBMITTED]
    for row, old in enumerate(rows):
        for name in ("gpus", "klass", "weight"):
            getattr(state.jobs, name)[row] = getattr(at.state.jobs, name)[old]
    return Paused(named=at.named, world=world, state=state), rows


@pytest.mark.parametrize("name", [DEFAULT, "las", "fifo-skip"])
@given(work=workloads(), part=st.floats(0.1, 1.0))
@settings(max_examples=60, deadline=None)
def test_with_the_true_lengths_the_present_goes_on_as_the_whole_does(
    name: str, work: Workload, part: float
) -> None:
    jobs = max(1, int(part * len(work.submits)))
    for job in paused(work, name, jobs).waiting[-3:]:
        whole = paused(work, name, jobs)
        present, rows = alone(whole, work)
        assert start_of(present, rows.index(job)) == start_of(whole, job)


@given(work=workloads(), seed=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_the_same_seed_draws_the_same_and_the_present_is_left_as_it_is(
    work: Workload, seed: int
) -> None:
    at = paused(work, DEFAULT, len(work.submits))
    present, rows = present_of(at.named.policy, at.state)
    past = Arrivals(at=at.world.submits, klass=at.state.jobs.klass)
    for job in at.waiting[:2]:
        before = clone(present)
        drawn = [
            waits(
                at.named.policy,
                present,
                rows.index(job),
                at.now,
                past,
                runs=5,
                seed=seed,
            )
            for _ in range(2)
        ]
        assert drawn[0] == drawn[1] == sorted(drawn[0])
        assert all(0 <= seconds <= 10 * 86_400 for seconds in drawn[0])
        assert all(
            list(mine) == list(theirs)
            for mine, theirs in zip(present.jobs, before.jobs, strict=True)
            if not isinstance(mine, int)
        )


def test_a_draw_lies_beyond_what_was_served_and_follows_the_record() -> None:
    history = history_of(2)
    for _ in range(300):
        learn_end(history, 0, 5)
        learn_end(history, 1, 12)
    relearn(history)
    dice = column(1, "int", 7)
    for klass, level in ((0, 5), (1, 12)):
        low, high = history.edge[level], history.edge[level + 1]
        drawn = [draw_seconds(history, klass, 0.0, dice) for _ in range(200)]
        assert sum(low <= seconds <= high + 1 for seconds in drawn) > 180
        beyond = history.edge[level + 3]
        assert all(
            draw_seconds(history, klass, beyond, dice) > beyond for _ in range(200)
        )
    assert (
        draw_seconds(history, 0, history.edge[LEVELS - 1] + 5, dice)
        > history.edge[LEVELS - 1]
    )


def test_draws_are_spread_evenly() -> None:
    dice = column(1, "int", 3)
    drawn = [roll(dice) for _ in range(4_000)]
    assert 0 < min(drawn) < max(drawn) < 1
    for tenth in range(10):
        assert 300 < sum(tenth / 10 <= one < (tenth + 1) / 10 for one in drawn) < 500
