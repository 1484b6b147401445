"""Any workload under any policy: the log's books balance, and give the same numbers."""

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.replay import Workload, metrics_of, replay
from corral.replay.replay import Event
from corral.schedule.order import DEFAULT, POLICIES, Named
from tests.replay.checker import check, longest_wait, mean_completion, mean_slowdown

NODES = (8, 8, 4, 2)


@st.composite
def workloads(draw: st.DrawFn, most: int = 40) -> Workload:
    jobs = draw(
        st.lists(
            st.tuples(
                st.integers(0, 3_000),
                st.sampled_from((1, 7, 40, 400, 3_000, 50_000, 400_000)),
                st.sampled_from((1, 1, 1, 2, 3, 4, 8, 8, 10, 16, 18)),
                st.integers(0, 2),
            ),
            min_size=1,
            max_size=most,
        )
    )
    jobs.sort()
    submits, durations, gpus, queues = zip(*jobs, strict=True)
    return Workload(
        submits=[float(at) for at in submits],
        durations=[float(own) for own in durations],
        gpus=gpus,
        queues=queues,
    )


def restarting(named: Named, seconds: float) -> Named:
    return replace(named, policy=named.policy._replace(restart_seconds=seconds))


@pytest.mark.parametrize("name", POLICIES)
@given(work=workloads(), restart=st.sampled_from((0.0, 60.0, 600.0)))
@settings(max_examples=30, deadline=None)
def test_books_balance_and_give_the_same_numbers(name: str, work: Workload, restart: float) -> None:
    events: list[Event] = []
    named = restarting(POLICIES[name], restart)
    outcome = replay(work, NODES, named, on_event=events.append)
    books, metrics = check(work, NODES, restart, events), metrics_of(outcome)
    assert metrics.jct_mean_s == pytest.approx(mean_completion(work, books))
    assert metrics.wait_max_s == pytest.approx(longest_wait(work, books), abs=1e-6)
    assert metrics.slowdown_mean == pytest.approx(mean_slowdown(work, books))
    assert metrics.preemptions == books.preemptions
    assert metrics.lost_gpu_s == pytest.approx(books.lost, abs=1e-3)
    assert outcome.held_gpu_seconds == pytest.approx(books.held, abs=1e-3)


@given(work=workloads())
@settings(max_examples=10, deadline=None)
def test_the_log_changes_nothing_and_the_same_input_gives_the_same_outcome(work: Workload) -> None:
    silent = replay(work, NODES, POLICIES[DEFAULT])
    assert replay(work, NODES, POLICIES[DEFAULT], on_event=lambda event: None) == silent


@given(work=workloads(most=15))
@settings(max_examples=15, deadline=None)
def test_strict_order_starts_nobody_before_an_earlier_one(work: Workload) -> None:
    starts: dict[int, float] = {}

    def see(event: Event) -> None:
        if event.kind == 0:
            starts.setdefault(event.job, event.at)

    replay(work, NODES, POLICIES["fifo"], on_event=see)
    in_order = [starts[job] for job in range(len(work.submits))]
    assert in_order == sorted(in_order)


def test_a_short_job_gets_the_place_of_a_long_one_once_it_has_waited_for_the_restart() -> None:
    work = Workload(submits=[0, 50_000], durations=[400_000, 30], gpus=[8, 8], queues=[0, 0])
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
    ageless = Named(policy=POLICIES[DEFAULT].policy._replace(elder_scale_seconds=0.0))
    assert ended < 1_500_000 < replay(work, [8], ageless).ended[0]


PLAIN = """
import sys
if sys.argv[1] == "plain":
    sys.modules["numba"] = None
from corral.replay import Workload, replay
from corral.schedule.compiled import IS_COMPILED
from corral.schedule.order import POLICIES
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
