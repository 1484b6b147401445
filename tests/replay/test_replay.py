"""Any workload under any policy: the log's books balance, and give the same numbers."""

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.replay import NodeFaults, Workload, largest_gang, metrics_of, replay
from corral.replay.array_replay import ReplayEvent, world_of
from corral.schedule.columns.order import DEFAULT, POLICIES, Named
from tests.replay.checker import check, longest_wait, mean_completion, mean_slowdown
from tests.replay.workloads import NODES, workloads


def restarting(named: Named, seconds: float) -> Named:
    return replace(named, policy=named.policy._replace(restart_seconds=seconds))


FAILING = (
    NodeFaults(),
    NodeFaults(mtbf_seconds=20_000, save_seconds=1_000, seed=3),
    NodeFaults(mtbf_seconds=4e5),
)


@pytest.mark.parametrize("name", POLICIES)
@given(
    work=workloads(),
    restart=st.sampled_from((0.0, 60.0, 600.0)),
    fail=st.sampled_from(FAILING),
)
@settings(max_examples=30, deadline=None)
def test_books_balance_and_give_the_same_numbers(
    name: str, work: Workload, restart: float, fail: NodeFaults
) -> None:
    events: list[ReplayEvent] = []
    named = restarting(POLICIES[name], restart)
    outcome = replay(work, NODES, named, failures=fail, on_event=events.append)
    books = check(work, NODES, restart, events, save_seconds=fail.save_seconds)
    metrics = metrics_of(outcome)
    assert metrics.jct_mean_s == pytest.approx(mean_completion(work, books))
    assert metrics.wait_max_s == pytest.approx(longest_wait(work, books), abs=1e-6)
    assert metrics.slowdown_mean == pytest.approx(mean_slowdown(work, books))
    assert metrics.preemptions == books.preemptions
    assert outcome.failures == books.failures
    assert metrics.lost_gpu_s == pytest.approx(books.lost, abs=1e-3)
    assert outcome.held_gpu_seconds == pytest.approx(books.held, abs=1e-3)
    window = work.submits[-1] * sum(NODES) / len(outcome.used)
    assert sum(outcome.used) * window == pytest.approx(books.held, abs=1e-3)
    assert 0 <= outcome.fragmentation <= 1


def test_windows_hold_all_that_was_held_also_where_their_bounds_are_rounded() -> None:
    """23 / (46 / 120) comes to a little less than 60, where the 60th window begins."""
    work = Workload(
        submits=[0.0, 23.0, 46.0], durations=[99.0] * 3, gpus=[1] * 3, queues=[0] * 3
    )
    outcome = replay(work, [2], POLICIES["fifo"])
    assert outcome.held_gpu_seconds == 23 + 2 * 23
    assert sum(outcome.used) * 46 * 2 / len(outcome.used) == pytest.approx(69)


def test_failures_are_the_dice_of_the_seed() -> None:
    work = Workload(submits=[0.0], durations=[500_000.0], gpus=[2], queues=[0])

    def ended(seed: int, save: float) -> float:
        fails = NodeFaults(mtbf_seconds=100_000, save_seconds=save, seed=seed)
        return float(replay(work, [2], POLICIES[DEFAULT], failures=fails).ended[0])

    assert ended(1, 600.0) == ended(1, 600.0) != ended(2, 600.0)
    assert 500_000 < ended(1, 600.0) < ended(1, 50_000.0) < ended(1, 0.0)


def test_whole_seconds_are_no_reason_to_compile_it_all_once_more() -> None:
    work = Workload(submits=[0.0], durations=[5.0], gpus=[2], queues=[0])
    whole = world_of(work, NodeFaults(mtbf_seconds=100_000, save_seconds=600))
    assert [type(one) for one in whole] == [type(one) for one in world_of(work)]


@pytest.mark.parametrize(
    ("nodes", "gpus"), [([8, 8, 4, 2], 20), ([1] * 5, 5), ([8], 8)]
)
def test_a_gang_larger_than_the_nodes_can_hold_is_refused(
    nodes: list[int], gpus: int
) -> None:
    assert largest_gang(nodes) == gpus

    def work(size: int) -> Workload:
        return Workload(submits=[0.0], durations=[5.0], gpus=[size], queues=[0])

    assert replay(work(gpus), nodes, POLICIES["fifo"]).ended == [5.0]
    with pytest.raises(ValueError, match="the nodes fit at most"):
        replay(work(gpus + 1), nodes, POLICIES["fifo"])


@given(work=workloads())
@settings(max_examples=10, deadline=None)
def test_the_log_changes_nothing_and_the_same_input_gives_the_same_outcome(
    work: Workload,
) -> None:
    silent = replay(work, NODES, POLICIES[DEFAULT])
    assert replay(work, NODES, POLICIES[DEFAULT], on_event=lambda event: None) == silent


@given(work=workloads(most=15))
@settings(max_examples=15, deadline=None)
def test_strict_order_starts_nobody_before_an_earlier_one(work: Workload) -> None:
    starts: dict[int, float] = {}

    def see(event: ReplayEvent) -> None:
        if event.kind == 0:
            starts.setdefault(event.job, event.at)

    replay(work, NODES, POLICIES["fifo"], on_event=see)
    in_order = [starts[job] for job in range(len(work.submits))]
    assert in_order == sorted(in_order)


def test_a_short_job_gets_the_place_of_a_long_one_once_it_has_waited_for_the_restart() -> (
    None
):
    work = Workload(
        submits=[0, 50_000], durations=[400_000, 30], gpus=[8, 8], queues=[0, 0]
    )
    ended = replay(work, [8], POLICIES[DEFAULT]).ended
    assert 50_090 <= ended[1] <= 50_160
    assert ended[0] == pytest.approx(400_000 + 30 + 60)
    assert replay(work, [8], POLICIES["fifo-skip"]).ended == [400_000, 400_030]


def test_nobody_waits_without_end_behind_a_stream_of_short_jobs() -> None:
    stream, long = 20_000, 100_000.0
    work = Workload(
        submits=[0.0, *(100.0 * at for at in range(stream))],
        durations=[long, *[100.0] * stream],
        gpus=[8] * (stream + 1),
        queues=[0] * (stream + 1),
    )
    ended = replay(work, [8], POLICIES[DEFAULT]).ended[0]
    ageless = Named(policy=POLICIES[DEFAULT].policy._replace(late_scale=0.0))
    assert ended < 1_500_000 < replay(work, [8], ageless).ended[0]


PLAIN = """
import sys
if sys.argv[1] == "plain":
    sys.modules["numba"] = None
from corral.replay import Workload, replay
from corral.schedule.arrays.compiled import IS_COMPILED
from corral.schedule.columns.order import POLICIES
import hashlib, random
assert IS_COMPILED == (sys.argv[1] == "compiled")
dice = random.Random(5)
work = Workload(
    submits=sorted(dice.uniform(0, 90_000) for _ in range(400)),
    durations=[10 ** dice.uniform(0, 5) for _ in range(400)],
    gpus=[dice.choice([1, 1, 2, 4, 8, 12, 24]) for _ in range(400)],
    queues=[dice.randrange(3) for _ in range(400)],
)
for name, named in POLICIES.items():
    events = []
    replay(work, [8, 8, 8, 4], named, on_event=lambda event: events.append(repr(event)))
    print(name, len(events), hashlib.sha256(str(events).encode()).hexdigest())
"""


def test_compiled_and_plain_decide_the_same() -> None:
    said = [_run_as(way) for way in ("compiled", "plain")]
    assert said[0] == said[1]
    assert len(said[0].splitlines()) == len(POLICIES)


def _run_as(way: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, way], capture_output=True, text=True, check=True
    )
    return done.stdout
