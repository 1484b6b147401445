"""Whoever delays nobody may go first, and no promised start is missed."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from corral.replay import Workload, metrics_of, replay
from corral.replay.array_replay import ReplayEvent
from corral.schedule.columns.order import POLICIES
from tests.replay.checker import Books, check
from tests.replay.workloads import NODES, workloads

EASY = ("easy", "easy-sjf", "easy-oracle", "backfill")


def books_of(work: Workload, nodes: tuple[int, ...], policy: str) -> Books:
    events: list[ReplayEvent] = []
    replay(work, nodes, POLICIES[policy], on_event=events.append)
    return check(work, nodes, 60.0, events)


@pytest.mark.parametrize("policy", EASY)
@given(work=workloads())
@settings(max_examples=40, deadline=None)
def test_easy_misses_no_promise_node_by_node(policy: str, work: Workload) -> None:
    assert books_of(work, NODES, policy).broken == []


@pytest.mark.parametrize("policy", [*EASY, "conservative"])
@given(work=workloads(widest=10))
@settings(max_examples=40, deadline=None)
def test_nobody_misses_a_promise_on_nodes_of_one_gpu(
    policy: str, work: Workload
) -> None:
    books = books_of(work, (1,) * 12, policy)
    assert books.broken == []
    if policy == "conservative":
        assert set(books.promised) == set(range(len(work.submits)))


@given(work=workloads(widest=10))
@settings(max_examples=40, deadline=None)
def test_conservative_starts_nobody_later_than_strict_order_does(
    work: Workload,
) -> None:
    one_by_one = [at + row / 1_000 for row, at in enumerate(work.submits)]
    exact = replace(work, limits=work.durations, submits=one_by_one)
    strict = replay(exact, (1,) * 12, POLICIES["fifo"])
    early = replay(exact, (1,) * 12, POLICIES["conservative"])
    assert all(
        one <= other + 1e-6
        for one, other in zip(early.ended, strict.ended, strict=True)
    )


def line(*jobs: tuple[float, int], limits: list[float] | None = None) -> Workload:
    """Jobs of (seconds, GPUs), submitted one second after the other."""
    durations, gpus = zip(*jobs, strict=True)
    return Workload(
        submits=[float(at) for at in range(len(jobs))],
        durations=durations,
        gpus=gpus,
        queues=[0] * len(jobs),
        limits=limits or durations,
    )


@pytest.mark.parametrize("policy", ["easy", "easy-sjf", "backfill", "conservative"])
def test_a_short_job_goes_ahead_and_a_long_one_does_not(policy: str) -> None:
    work = line((100.0, 2), (100.0, 3), (500.0, 1), (50.0, 1))
    ended = replay(work, (1, 1, 1), POLICIES[policy]).ended
    assert ended[3] == 3 + 50
    assert ended[1] == 100 + 100
    assert ended[2] == 200 + 500


def test_a_small_long_job_runs_beside_the_one_that_is_promised_a_start() -> None:
    work = line((100.0, 2), (100.0, 2), (500.0, 1))
    assert replay(work, (1, 1, 1), POLICIES["easy"]).ended == [100, 200, 502]


def test_what_is_left_beside_a_promise_is_given_once() -> None:
    jobs = line((100.0, 4), (100.0, 6), (500.0, 2), (500.0, 2))
    work = replace(jobs, submits=[0.0, 1.0, 2.0, 2.0])
    assert replay(work, (8,), POLICIES["easy"]).ended == [100, 200, 502, 700]


def test_who_outlasts_the_limit_delays_others_but_stops_nothing() -> None:
    work = line((1_000.0, 2), (100.0, 3), (10.0, 1), limits=[100.0, 100.0, 10.0])
    for policy in ("easy", "conservative"):
        ended = replay(work, (1, 1, 1), POLICIES[policy]).ended
        assert (ended[0], ended[1]) == (1_000, 1_100)


def test_the_default_counts_on_limits_where_all_jobs_have_them() -> None:
    work = line((100.0, 2), (100.0, 3), (500.0, 1), (50.0, 1))
    default = POLICIES["default"]
    assert (
        replay(work, (1, 1, 1), default).ended
        == replay(work, (1, 1, 1), POLICIES[default.with_limits]).ended
    )
    assert metrics_of(replay(work, (1, 1, 1), default)).preemptions == 0


def test_without_an_oracle_the_kin_tell_who_is_short() -> None:
    """User 0's jobs are long and user 1's short: a second one of each waits."""
    work = Workload(
        submits=[0, 1, 2_000, 2_001, 2_002],
        durations=[1_000, 10, 100, 1_000, 10],
        gpus=[1] * 5,
        queues=[0] * 5,
        users=[0, 1, 2, 0, 1],
    )
    assert replay(work, [1], POLICIES["sjf"]).ended == [
        1_000,
        1_010,
        2_100,
        3_110,
        2_110,
    ]
