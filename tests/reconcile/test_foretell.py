"""When a waiting job starts: the present played forward by what decides live."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.attempt import Save
from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE, JobSpec
from corral.domain.observed_state import Phase, Progress
from corral.domain.queue import Queue
from corral.domain.queue_policy import Policy
from corral.domain.requests import Cancel, SetQueues
from corral.domain.resources import Resources, Shape
from corral.domain.run_history import (
    FEW,
    Question,
    Ran,
    StartForecast,
    StartForecastTold,
)
from corral.domain.time_point import Moment
from corral.reconcile.start_forecast import foretell
from tests.reconcile.saving import save_of
from tests.worlds import ALICE, SAVING, Cluster, gang, node


def ended(stem: str, seconds: float, gpus: int = 1, nodes: int = 1) -> Ran:
    shape = Shape(nodes=nodes, resources=Resources(gpu_millis=gpus * 1000))
    return Ran(
        job=JobId("j0"), user=ALICE, queue=DEFAULT_QUEUE, stem=stem, shape=shape, priority=0,
        preemptible=False, seconds=seconds, submitted_at=0.0, ended_at=0.0,
    )  # fmt: skip


def asked(
    cluster: Cluster,
    job: JobId,
    runs: Sequence[Ran] = (),
    told: Sequence[StartForecastTold] = (),
    instead: Sequence[tuple[str, JobSpec]] = (),
) -> StartForecast | None:
    question = Question(
        world=cluster.world,
        facts=cluster.facts,
        wall=cluster.wall,
        serving=cluster.serving,
        runs=tuple(runs),
        told=tuple(told),
        job=job,
        instead=tuple(instead),
    )
    return foretell(question, lambda part: True)


def full(seconds_ago: float, *names: str, **more: Any) -> Cluster:
    """Two nodes of one GPU, each with a job that has run for so long."""
    cluster = Cluster(node("n1", gpus=1), node("n2", gpus=1))
    for name in names:
        cluster.up(cluster.submit(gang(name, **more)))
    cluster.tick(seconds=seconds_ago)
    return cluster


def test_a_job_starts_when_the_kin_of_those_that_run_would_have_ended() -> None:
    cluster = full(100.0, "train-1", "train-2")
    waiting = cluster.submit(gang("train-3"))
    found = asked(
        cluster, waiting, [ended("train", seconds) for seconds in (400.0, 700.0)] * 10
    )
    assert found is not None
    assert 290 < found.starts.low_seconds < 300
    assert found.starts.high_seconds is not None
    assert 290 < found.starts.high_seconds < 600
    assert found.ends.low_seconds > found.starts.low_seconds + 390
    assert found.known == 1.0


@pytest.mark.parametrize(("saved", "after", "least", "most"), [
    (None, 0.0, 29.0, 30.0), (3.0, 0.0, 4.0, 5.0), (3.0, 10.0, 19.0, 20.0), (300.0, 0.0, 29.0, 30.0)
])  # fmt: skip
def test_one_that_stops_is_gone_as_soon_as_it_has_saved_or_else_when_its_grace_is_over(
    saved: float | None, after: float, least: float, most: float
) -> None:
    cluster = Cluster(node("n1", gpus=1))
    holder = cluster.submit(gang("train", checkpoint=SAVING, grace_seconds=30.0))
    cluster.up(holder)
    saves: tuple[Save, ...] = ()
    if saved is not None:
        saves = (replace(save_of(cluster, holder, 1), seconds=saved),)
    cluster.say(holder, Phase.UP, progress=Progress(step=2), saves=saves)
    cluster.tick()
    waiting = cluster.submit(gang("eval"))
    cluster.request(Cancel(job=holder))
    cluster.tick(seconds=0.1 + after)
    found = asked(cluster, waiting, [ended("eval", 400.0)] * 20)
    assert found is not None
    assert found.starts.high_seconds is not None
    assert least <= found.starts.low_seconds <= found.starts.high_seconds <= most


@pytest.mark.parametrize(
    ("kin", "others_come", "times"),
    # an answer with others: 2 s
    [(0, False, 20), (3, False, 20), (25, False, 20), (25, True, 6)],
)
def test_an_unchanged_cluster_answers_alike_but_for_the_seconds_that_pass(
    kin: int, others_come: bool, times: int
) -> None:
    """The chances are of the jobs, not of the moment: asked each second, no interval
    jumps. What is guessed without a limit is the longer the longer a job runs, and is
    left out here."""
    cluster = full(130.0, "train-1", "train-2", max_duration_seconds=4000.0)
    waiting = cluster.submit(gang("train-3", nodes=2, max_duration_seconds=4000.0))
    begun = cluster.wall - 6000.0
    lengths = [
        replace(ended("train", 400.0 + 40.0 * n), submitted_at=begun)
        for n in range(kin)
    ]
    came = [
        replace(
            ended("bob", 300.0), user=UserName("bob"), submitted_at=begun + 97.3 * turn
        )
        for turn in range(1, 60)
    ]
    told = []
    for _ in range(times):
        found = asked(cluster, waiting, [*(came if others_come else ()), *lengths])
        assert found is not None
        told.append((found.starts.low_seconds, found.starts.high_seconds or 0.0))
        cluster.wall += 1.0
        cluster.serving += 1.0
    for before, after in pairwise(told):
        for end in (0, 1):
            assert before[end] - 1.01 <= after[end] <= before[end] + 0.01, told


def test_who_comes_or_goes_changes_the_luck_of_nobody_else() -> None:
    cluster = full(100.0, "train-1", "train-2")
    waiting = cluster.submit(gang("train-3"))
    runs = [ended("train", 400.0 + 40.0 * number) for number in range(25)]
    before = asked(cluster, waiting, runs)
    cluster.submit(gang("train-4"))
    after = asked(cluster, waiting, runs)
    assert before is not None
    assert after is not None
    assert after.starts.low_seconds == pytest.approx(before.starts.low_seconds - 0.5)


def test_who_waits_ahead_of_it_goes_first() -> None:
    cluster = full(100.0, "train-1", "train-2")
    for number in (3, 4):
        cluster.submit(gang(f"train-{number}"))
    waiting = cluster.submit(gang("train-5"))
    found = asked(cluster, waiting, [ended("train", 400.0)] * 20)
    assert found is not None
    assert 690 < found.starts.low_seconds < 700, (
        "after one that runs, and one that waits"
    )


def test_without_kin_it_goes_by_the_limits_and_says_so() -> None:
    cluster = Cluster(node("n1", gpus=1))
    cluster.up(cluster.submit(gang("train", max_duration_seconds=1000.0)))
    waiting = cluster.submit(gang("eval"))
    found = asked(cluster, waiting)
    assert found is not None
    assert found.known == 0.0
    assert found.held is None
    assert found.starts.high_seconds is not None
    assert 990 < found.starts.high_seconds <= 1000
    assert found.starts.low_seconds < 500
    assert str(found).endswith(
        " (no earlier forecasts to compare; based on the time limits of jobs)"
    ), "no percentage that none has seen"


@pytest.mark.parametrize(("others", "said"), [
    ((None, None), "a guess: no job has a time limit, and no similar job has ended"),
    ((1000.0, None), "based on time limits, and on guesses for jobs without one"),
])  # fmt: skip
def test_limits_are_named_only_as_far_as_there_are_any(
    others: tuple[float | None, ...], said: str
) -> None:
    cluster = Cluster(node("n1", gpus=1), node("n2", gpus=1))
    for number, seconds in enumerate(others):
        cluster.up(
            cluster.submit(gang(f"train-{number}", max_duration_seconds=seconds))
        )
    found = asked(cluster, cluster.submit(gang("eval")))
    assert str(found).endswith(f" (no earlier forecasts to compare; {said})")
    known = asked(cluster, JobId("j3"), [ended("eval", 5.0)])
    assert known is not None
    assert ("limits" in known.basis) == (others[0] is not None)


def test_where_none_of_many_alike_has_ended_they_may_all_be_short() -> None:
    """Twenty tiny jobs with an hour's limit each: what is not known of one is known of
    none."""
    cluster = Cluster(node("n1", gpus=1), node("n2", gpus=1))
    specs = [
        gang(f"tiny-{number}", max_duration_seconds=3600.0) for number in range(20)
    ]
    ids = [cluster.submit(spec) for spec in specs]
    before = asked(cluster, ids[-1])
    after = asked(cluster, ids[-1], [ended("tiny", 30.0)] * 4)
    assert before is not None
    assert after is not None
    assert before.starts.low_seconds < 60
    assert before.starts.high_seconds is not None
    assert before.starts.high_seconds > 20_000
    assert after.starts.high_seconds is not None
    assert after.starts.high_seconds < 300, "a few that ended are what it goes by"
    assert after.ends.high_seconds is not None
    assert after.ends.high_seconds < 330


def test_what_can_start_in_no_way_has_no_end() -> None:
    cluster = full(0.0, "train-1", "train-2")
    waiting = cluster.submit(gang("big", nodes=2))
    cluster.nodes.pop(node("n2").id)
    cluster.facts.nodes.pop(node("n2").id)
    found = asked(cluster, waiting, [ended("train", 400.0)])
    assert found is not None
    assert found.starts.high_seconds is None
    assert str(found.starts) == "in more than 10 d"


def test_where_the_time_is_over_it_is_told_how_far_it_was_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("corral.reconcile.start_forecast.PASSES", 3)
    monkeypatch.setattr("corral.replay.start_distribution.PASSES_AT_ONCE", 1)
    cluster = full(100.0, "train-1", "train-2")
    for number in range(3, 9):
        cluster.submit(gang(f"train-{number}"))
    found = asked(cluster, cluster.submit(gang("train-9")), [ended("train", 400.0)])
    assert found is not None
    assert found.starts.high_seconds is None
    assert found.starts.low_seconds > 0
    assert str(found.starts).startswith("in more than ")
    assert not found.is_bounded


def test_one_that_does_not_wait_has_no_forecast() -> None:
    cluster = full(0.0, "train-1")
    assert asked(cluster, JobId("j1")) is None
    assert asked(cluster, JobId("j9")) is None


def test_a_smaller_gang_is_suggested_when_it_starts_sooner() -> None:
    cluster = Cluster(node("n1", gpus=1), node("n2", gpus=1))
    cluster.up(cluster.submit(gang("long")))
    cluster.up(cluster.submit(gang("short")))
    spec = gang("big", nodes=2)
    waiting = cluster.submit(spec)
    instead = [("with 1 node", replace(spec, nodes=1)), ("with 3 h", spec)]
    runs = [ended("long", 4000.0), ended("short", 200.0)] * 20
    found = asked(cluster, waiting, runs, instead=instead)
    assert found is not None
    assert found.starts.low_seconds > 3900
    assert [one.change for one in found.instead] == ["with 1 node"]
    assert found.instead[0].starts.high_seconds is not None
    assert found.instead[0].starts.high_seconds < 200


@pytest.mark.parametrize(("gpus", "said"), [(2, "2 jobs of queue default"), (0, "")])
def test_a_suggestion_says_whom_it_would_stop(gpus: int, said: str) -> None:
    """Another queue with GPUs of its own takes them back; one without waits like the
    others."""
    cluster = full(600.0, "train-1", "train-2", checkpoint=SAVING)
    name = QueueName("owner")
    owner = Queue(name=name, nominal=(("any", 1000 * gpus),) if gpus else ())
    poor = Queue(name=QueueName("poor"), borrow_limit_millis=2000)
    cluster.request(SetQueues(queues=(owner, poor), whole=False))
    spec = gang("eval", nodes=2, queue=QueueName("poor"))
    waiting = cluster.submit(spec)
    changes = [("in queue owner", replace(spec, queue=name))]
    found = asked(cluster, waiting, [ended("train", 9000.0)] * 20, instead=changes)
    assert found is not None
    assert [one.stops for one in found.instead] == ([said] if said else [])


def outcome(drawn: tuple[float, float], waited_seconds: float) -> StartForecastTold:
    low, high = drawn
    return StartForecastTold(
        job=JobId("j0"),
        at=0.0,
        drawn_low_seconds=low,
        drawn_high_seconds=high,
        low_seconds=low,
        high_seconds=high,
        waited_seconds=waited_seconds,
    )


def test_an_interval_is_widened_by_how_its_like_came_out() -> None:
    cluster = full(100.0, "train-1", "train-2")
    waiting = cluster.submit(gang("train-3"))
    runs = [ended("train", 400.0)] * 20
    plain = asked(cluster, waiting, runs)
    late = [outcome((300.0, 300.0), 900.0)] * FEW
    found = asked(cluster, waiting, runs, late)
    assert plain is not None
    assert found is not None
    assert plain.starts.high_seconds is not None
    assert found.starts.high_seconds is not None
    assert plain.starts.high_seconds < 300
    assert found.starts.high_seconds > 850
    assert (found.told, found.held) == (FEW, 0.0)
    assert found.record == f"0 % of the last {FEW} forecasts were right"
    assert found.row.drawn_high_seconds == plain.row.drawn_high_seconds


def test_few_outcomes_are_told_as_a_guess_and_not_with_a_percentage() -> None:
    cluster = full(100.0, "train-1", "train-2")
    waiting = cluster.submit(gang("train-3"))
    runs = [ended("train", 400.0)] * 20
    held, missed = outcome((300.0, 300.0), 300.0), outcome((300.0, 300.0), 310.0)
    for told, said in (
        ([held], "only 1 earlier forecast can be compared, and it was right)"),
        (
            [missed],
            "only 1 earlier forecast can be compared, and it was wrong)",
        ),
        (
            [held, *[missed] * 4],
            "only 5 earlier forecasts can be compared, 1 of them right)",
        ),
    ):
        found = asked(cluster, waiting, runs, told)
        assert str(found).endswith(f" (a guess: {said}")
        assert "%" not in str(found)


@pytest.mark.parametrize(("seconds", "may_be", "is_likely"), [
    (200.0, True, True), (450.0, True, False), (1000.0, False, False)
])  # fmt: skip
def test_who_starts_after_its_start_by_is_told_so(
    seconds: float, may_be: bool, is_likely: bool
) -> None:
    cluster = full(100.0, "train-1", "train-2")
    by = Moment(after_seconds=seconds)
    waiting = cluster.submit(gang("train-3", nodes=2, start_by=by))
    runs = [ended("train", 400.0 + 10.0 * number) for number in range(20)]
    found = asked(cluster, waiting, runs)
    assert found is not None
    assert 300 < found.starts.low_seconds < 450 < (found.starts.high_seconds or 0.0)
    assert (found.may_be_given_up, found.is_too_late) == (may_be, is_likely)


gangs = st.tuples(st.integers(1, 3), st.integers(1, 2), st.none() | st.floats(1, 1e5))


@settings(max_examples=20, deadline=None)
@given(
    jobs=st.lists(gangs, min_size=1, max_size=6),
    seconds=st.lists(st.floats(0, 1e5), max_size=4),
    passed=st.floats(0, 1e4),
    waits=st.lists(st.floats(0, 1e6), max_size=FEW + 5),
)
def test_an_interval_begins_now_or_later_and_ends_no_sooner(
    jobs: list[tuple[int, int, float | None]],
    seconds: list[float],
    passed: float,
    waits: list[float],
) -> None:
    cluster = Cluster(node("n1"), node("n2"), node("n3"))
    for number, (nodes, gpus, limit) in enumerate(jobs):
        spec = gang(f"a-{number}", nodes=nodes, gpus=gpus, max_duration_seconds=limit)
        cluster.submit(spec)
    cluster.tick(seconds=passed)
    runs = [ended("a", one, gpus=2) for one in seconds]
    told = [outcome((10.0, 100.0), one) for one in waits]
    for job in cluster.world.jobs.values():
        found = asked(cluster, job.id, runs, told)
        assert (found is None) == (job.state != "QUEUED")
        if found is not None and found.ends.high_seconds is not None:
            assert found.starts.high_seconds is not None, (
                "Span checks the order of its own ends"
            )
            assert found.ends.low_seconds >= found.starts.low_seconds
            assert found.ends.high_seconds >= found.starts.high_seconds


def test_those_who_usually_come_may_go_first() -> None:
    """Bob has used nothing, and submits a job a minute: his are served before
    Alice's."""
    cluster = Cluster(node("n1", gpus=1))
    cluster.up(cluster.submit(gang("train-1")))
    waiting = cluster.submit(gang("train-2"))
    runs = [replace(ended("train", 4000.0), submitted_at=cluster.wall - 12_000.0)]
    alone = asked(cluster, waiting, runs)
    bob = UserName("bob")
    came = [
        replace(
            ended("bob", 3000.0), user=bob, submitted_at=cluster.wall - 60.0 * minute
        )
        for minute in range(1, 200)
    ]
    among = asked(cluster, waiting, [*came, *runs])
    assert alone is not None
    assert among is not None
    assert alone.starts.high_seconds is not None
    assert alone.starts.high_seconds <= 4000
    assert among.starts.high_seconds is None or among.starts.high_seconds > 4000


def test_a_limit_with_which_it_could_go_before_a_promised_start_is_suggested() -> None:
    cluster = Cluster(node("n1", gpus=1), node("n2", gpus=1))
    cluster.request(
        SetQueues(
            queues=(Queue(name=DEFAULT_QUEUE, policy=Policy.BACKFILL),), whole=True
        )
    )
    cluster.up(cluster.submit(gang("runs", max_duration_seconds=1000.0)))
    cluster.submit(gang("big", nodes=2, max_duration_seconds=500.0))
    spec = gang("small", max_duration_seconds=1800.0)
    waiting = cluster.submit(spec)
    shorter = replace(spec, max_duration_seconds=900.0)
    runs = [ended("runs", 1000.0), ended("big", 500.0, nodes=2)]
    found = asked(
        cluster, waiting, runs, instead=[("with a max_duration of 15 min", shorter)]
    )
    assert found is not None
    assert found.starts.low_seconds > 400
    assert [one.change for one in found.instead] == ["with a max_duration of 15 min"]
    assert found.instead[0].starts.high_seconds == 0.0


@pytest.mark.parametrize("earlier", [900.0, 9000.0])
def test_no_end_of_the_interval_lies_behind_a_promised_start(earlier: float) -> None:
    cluster = Cluster(node("n1", gpus=1), node("n2", gpus=1))
    cluster.request(
        SetQueues(
            queues=(Queue(name=DEFAULT_QUEUE, policy=Policy.BACKFILL),), whole=True
        )
    )
    cluster.up(cluster.submit(gang("runs", max_duration_seconds=1000.0)))
    big = cluster.submit(gang("big", nodes=2, max_duration_seconds=500.0))
    promised = cluster.world.reservations[big].latest_start
    assert promised is not None
    late = [outcome((earlier, earlier), 9.0 * earlier)] * FEW
    found = asked(cluster, big, [ended("big", 500.0, nodes=2)] * 20, late)
    assert found is not None
    assert found.starts.high_seconds is not None
    assert found.starts.high_seconds == pytest.approx(promised - cluster.wall)
    assert found.starts.low_seconds <= found.starts.high_seconds
    assert found.row.high_seconds == found.starts.high_seconds, (
        "what is told is what is recorded"
    )
    assert found.ends.high_seconds is not None
    assert found.ends.high_seconds >= found.starts.high_seconds + 490.0


def test_a_job_starts_when_those_that_run_have_made_their_last_step() -> None:
    cluster = full(100.0, "train-1", "train-2")
    loop = Progress(step=100, until=700, compute_seconds=100.0)
    for id in list(cluster.world.jobs):
        cluster.say(id, Phase.UP, progress=loop)
    cluster.tick()
    waiting = cluster.submit(gang("other"))
    found = asked(
        cluster, waiting, [ended("train", seconds) for seconds in (150.0, 9000.0)] * 10
    )
    assert found is not None
    assert 500 < found.starts.low_seconds < 600
    assert found.starts.high_seconds is not None
    assert 600 < found.starts.high_seconds < 800


def test_a_change_with_which_the_job_starts_now_says_so() -> None:
    cluster = full(100.0, "train-1")
    spec = gang("wide", nodes=2)
    waiting = cluster.submit(spec)
    found = asked(cluster, waiting, instead=[("with 1 node", replace(spec, nodes=1))])
    assert found is not None
    (change,) = found.instead
    assert str(change.starts) == "now"
