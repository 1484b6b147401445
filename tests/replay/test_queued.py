"""Any workload through the live decision with queues: the log's books balance, and give the same
numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.ids import QueueName
from corral.domain.queue import ANY_TYPE, Policy, Queue, whole_tree
from corral.replay import Workload, metrics_of
from corral.replay.queued import replay_queued, shape_of
from corral.replay.replay import Event
from tests.replay.checker import check, longest_wait, mean_completion, mean_slowdown
from tests.replay.workloads import workloads

NODES = (8, 8, 4, 2)
NAMES = [QueueName(name) for name in "abc"]


@given(
    work=workloads(widest=16),
    own=st.tuples(*[st.integers(0, 8)] * 3),
    restart=st.sampled_from((0.0, 600.0)),
)
@settings(max_examples=40, deadline=None)
def test_books_balance_and_give_the_same_numbers(
    work: Workload, own: tuple[int, int, int], restart: float
) -> None:
    queues = [
        Queue(name=name, nominal=((ANY_TYPE, gpus * 1000),) if gpus else ())
        for name, gpus in zip(NAMES, own, strict=True)
    ]
    events: list[Event] = []
    outcome = replay_queued(
        work, NODES, whole_tree(queues), NAMES, restart_seconds=restart, on_event=events.append
    )
    books = check(work, NODES, restart, events)
    metrics = metrics_of(outcome)
    assert metrics.jct_mean_s == pytest.approx(mean_completion(work, books))
    assert metrics.wait_max_s == pytest.approx(longest_wait(work, books), abs=1e-6)
    assert metrics.slowdown_mean == pytest.approx(mean_slowdown(work, books))
    assert metrics.preemptions == books.preemptions
    assert metrics.lost_gpu_s == pytest.approx(books.lost, abs=1e-3)
    assert outcome.held_gpu_seconds == pytest.approx(books.held, abs=1e-3)
    window = work.submits[-1] * sum(NODES) / len(outcome.used)
    assert sum(outcome.used) * window == pytest.approx(books.held, abs=1e-3)
    assert 0 <= outcome.fragmentation <= 1


def test_a_gang_lies_in_the_fewest_equal_parts() -> None:
    shapes = {gpus: shape_of(gpus, [8] * 4) for gpus in (3, 8, 12, 16, 24)}
    parts = {gpus: (one.nodes, one.resources.gpus) for gpus, one in shapes.items()}
    assert parts == {3: (1, 3), 8: (1, 8), 12: (2, 6), 16: (2, 8), 24: (3, 8)}
    with pytest.raises(ValueError, match="in equal parts"):
        shape_of(11, [8] * 4)


@pytest.mark.parametrize(
    ("policy", "wide_ends"), [(Policy.BACKFILL, 1100), (Policy.FIFO_SKIP, 3120)]
)
def test_limits_of_a_log_let_a_queue_promise_a_start(policy: Policy, wide_ends: int) -> None:
    """A job of all nodes waits for one that has 1,200 s; a long one may not pass it by backfill."""
    work = Workload(
        submits=[0.0, 10.0, 20.0],
        durations=[1000.0, 100.0, 3000.0],
        gpus=[4, 10, 2],
        queues=[0] * 3,
        limits=[1200.0, 200.0, 3100.0],
    )
    tree = whole_tree([Queue(name=NAMES[0], policy=policy)])
    assert replay_queued(work, (1,) * 10, tree, NAMES).ended[1] == wide_ends
