"""Any workload through the live decision with queues: the log's books balance, and give
the same numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.ids import QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import ANY_TYPE, Budget, Queue
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import whole_tree
from corral.replay import NodeFaults, Workload, metrics_of, replay
from corral.replay.array_replay import ReplayEvent
from corral.replay.budget_spending import Spending
from corral.replay.queue_replay import replay_queued, shape_of
from corral.schedule.columns.order import POLICIES
from corral.schedule.quota.balances import QuotaHolding
from corral.schedule.quota.fair_share import ResourceAmounts
from tests.replay.checker import check, longest_wait, mean_completion, mean_slowdown
from tests.replay.workloads import workloads

NODES = (8, 8, 4, 2)
FAILING = (
    NodeFaults(),
    NodeFaults(mtbf_seconds=20_000, save_seconds=1_000, seed=3),
    NodeFaults(mtbf_seconds=4e5),
)
NAMES = [QueueName(name) for name in "abc"]


@given(
    work=workloads(widest=16),
    own=st.tuples(*[st.integers(0, 8)] * 3),
    restart=st.sampled_from((0.0, 600.0)),
    fail=st.sampled_from(FAILING),
)
@settings(max_examples=40, deadline=None)
def test_books_balance_and_give_the_same_numbers(
    work: Workload, own: tuple[int, int, int], restart: float, fail: NodeFaults
) -> None:
    queues = [
        Queue(name=name, nominal=((ANY_TYPE, gpus * 1000),) if gpus else ())
        for name, gpus in zip(NAMES, own, strict=True)
    ]
    events: list[ReplayEvent] = []
    outcome = replay_queued(
        work,
        NODES,
        whole_tree(queues),
        NAMES,
        restart_seconds=restart,
        failures=fail,
        on_event=events.append,
    )
    books = check(work, NODES, restart, events, save_seconds=fail.save_seconds)
    metrics = metrics_of(outcome)
    assert metrics.jct_mean_s == pytest.approx(mean_completion(work, books))
    assert metrics.wait_max_s == pytest.approx(longest_wait(work, books), abs=1e-6)
    assert metrics.slowdown_mean == pytest.approx(mean_slowdown(work, books))
    assert metrics.preemptions == books.preemptions
    assert metrics.failures == books.failures
    assert metrics.lost_gpu_s == pytest.approx(books.lost, abs=1e-3)
    assert outcome.held_gpu_seconds == pytest.approx(books.held, abs=1e-3)
    window = work.submits[-1] * sum(NODES) / len(outcome.used)
    assert sum(outcome.used) * window == pytest.approx(books.held, abs=1e-3)
    assert 0 <= outcome.fragmentation <= 1


@pytest.mark.parametrize("fail", FAILING[1:])
def test_the_same_nodes_fail_at_the_same_moments_as_without_queues(
    fail: NodeFaults,
) -> None:
    work = Workload(
        submits=[0.0, 0.0], durations=[500_000.0, 900_000.0], gpus=[2, 1], queues=[0, 0]
    )
    own = replay(work, (2, 1), POLICIES["fifo"], failures=fail)
    queued = replay_queued(work, (2, 1), whole_tree([]), [DEFAULT_QUEUE], failures=fail)
    assert queued.ended == pytest.approx(own.ended)
    assert queued.failures == own.failures > 0
    assert queued.lost_gpu_seconds == pytest.approx(own.lost_gpu_seconds)


def test_a_gang_lies_in_the_fewest_equal_parts() -> None:
    shapes = {gpus: shape_of(gpus, [8] * 4) for gpus in (3, 8, 12, 16, 24)}
    parts = {gpus: (one.nodes, one.resources.gpus) for gpus, one in shapes.items()}
    assert parts == {3: (1, 3), 8: (1, 8), 12: (2, 6), 16: (2, 8), 24: (3, 8)}
    with pytest.raises(ValueError, match="in equal parts"):
        shape_of(11, [8] * 4)


@pytest.mark.parametrize(
    ("policy", "wide_ends"), [(Policy.BACKFILL, 1100), (Policy.FIFO_SKIP, 3120)]
)
def test_limits_of_a_log_let_a_queue_promise_a_start(
    policy: Policy, wide_ends: int
) -> None:
    """A job of all nodes waits for one that has 1,200 s; a long one may not pass it by
    backfill."""
    work = Workload(
        submits=[0.0, 10.0, 20.0],
        durations=[1000.0, 100.0, 3000.0],
        gpus=[4, 10, 2],
        queues=[0] * 3,
        limits=[1200.0, 200.0, 3100.0],
    )
    tree = whole_tree([Queue(name=NAMES[0], policy=policy)])
    assert replay_queued(work, (1,) * 10, tree, NAMES).ended[1] == wide_ends


HOURS = 2.0  # of GPUs: spent by 4 GPUs after 1,800 s
NEVER_SPENT = Budget(gpu_hours=1000.0)
FOR_PRIORITY = Budget(gpu_hours=HOURS, demote_to=-1)
ONCE = Budget(gpu_hours=HOURS)
OF_MONEY = Budget(money=3.0, rates=((ANY_TYPE, 1.5),))
EACH_PERIOD = Budget(gpu_hours=HOURS, period_seconds=5000.0)


@pytest.mark.parametrize(
    ("budget", "starts_at"),
    [
        *((None, 3000), (NEVER_SPENT, 3000), (FOR_PRIORITY, 3000)),
        *((ONCE, 12_000), (OF_MONEY, 12_000), (EACH_PERIOD, 5000)),
    ],
)
def test_who_has_spent_its_budget_takes_back_nothing_until_it_counts_anew(
    budget: Budget | None, starts_at: float
) -> None:
    """The other queue borrows its GPUs from 2,000 s to 12,000 s."""
    work = Workload(
        submits=[0.0, 2000.0, 2000.0, 3000.0],
        durations=[1900.0, 10_000.0, 10_000.0, 100.0],
        gpus=[4] * 4,
        queues=[0, 1, 1, 0],
    )
    own = ((ANY_TYPE, 4000),)
    queues = [
        Queue(name=NAMES[0], nominal=own, budget=budget, policy=Policy.FIFO),
        Queue(name=NAMES[1], nominal=own, policy=Policy.FIFO),
    ]
    events: list[ReplayEvent] = []
    replay_queued(work, [4, 4], whole_tree(queues), NAMES[:2], on_event=events.append)
    books = check(work, [4, 4], 60.0, events)
    assert books.ended[3] == pytest.approx(starts_at + 100)


def test_a_spent_budget_lowers_priorities_until_it_counts_anew() -> None:
    budget = Budget(gpu_hours=HOURS, period_seconds=5000.0, demote_to=-1)
    spending = Spending(whole_tree([Queue(name=NAMES[0], budget=budget)]), 0.0)
    holding = QuotaHolding(
        queue=NAMES[0], user=UserName(""), amounts=ResourceAmounts(gpus=4.0)
    )
    spending.take(holding)
    assert spending.due_at == 1800
    assert not spending.pass_time(1799.0)
    assert spending.pass_time(1800.0)
    assert [spending.priority(NAMES[0], own) for own in (-2, 0, 5)] == [-2, -1, -1]
    assert spending.due_at == 5000
    assert spending.pass_time(5000.0)
    assert spending.priority(NAMES[0], 5) == 5
    assert spending.due_at == 6800
