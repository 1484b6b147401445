"""When a waiting job starts: the present played forward by what decides live."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.forecast import FEW, Forecast, Question, Ran, Told
from corral.domain.ids import JobId, UserName
from corral.domain.job import DEFAULT_QUEUE, JobSpec
from corral.domain.queue import Policy, Queue
from corral.domain.resources import Resources, Shape
from corral.domain.wishes import SetQueues
from corral.reconcile.foretell import foretell
from tests.worlds import ALICE, Cluster, gang, node


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
    told: Sequence[Told] = (),
    instead: Sequence[tuple[str, JobSpec]] = (),
) -> Forecast | None:
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


def full(seconds_ago: float, *names: str) -> Cluster:
    """Two nodes of one GPU, each with a job that has run for so long."""
    cluster = Cluster(node("n1", gpus=1), node("n2", gpus=1))
    for name in names:
        cluster.up(cluster.submit(gang(name)))
    cluster.tick(seconds=seconds_ago)
    return cluster


def test_a_job_starts_when_the_kin_of_those_that_run_would_have_ended() -> None:
    cluster = full(100.0, "train-1", "train-2")
    waiting = cluster.submit(gang("train-3"))
    found = asked(cluster, waiting, [ended("train", seconds) for seconds in (400.0, 700.0)] * 10)
    assert found is not None
    assert 290 < found.starts.low_seconds < 300
    assert found.starts.high_seconds is not None
    assert 290 < found.starts.high_seconds < 600
    assert found.ends.low_seconds > found.starts.low_seconds + 390
    assert found.known == 1.0


def test_who_waits_ahead_of_it_goes_first() -> None:
    cluster = full(100.0, "train-1", "train-2")
    for number in (3, 4):
        cluster.submit(gang(f"train-{number}"))
    waiting = cluster.submit(gang("train-5"))
    found = asked(cluster, waiting, [ended("train", 400.0)] * 20)
    assert found is not None
    assert 690 < found.starts.low_seconds < 700, "after one that runs, and one that waits"


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
    assert str(found).endswith(" (no record yet: from limits)"), "no percentage that none has seen"


def test_where_none_of_many_alike_has_ended_they_may_all_be_short() -> None:
    """Twenty tiny jobs with an hour's limit each: what is not known of one is known of none."""
    cluster = Cluster(node("n1", gpus=1), node("n2", gpus=1))
    specs = [gang(f"tiny-{number}", max_duration_seconds=3600.0) for number in range(20)]
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
    monkeypatch.setattr("corral.reconcile.foretell.PASSES", 3)
    monkeypatch.setattr("corral.replay.outlook.PASSES_AT_ONCE", 1)
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


def outcome(drawn: tuple[float, float], waited_seconds: float) -> Told:
    low, high = drawn
    return Told(
        job=JobId("j0"), at=0.0, drawn_low_seconds=low, drawn_high_seconds=high,
        low_seconds=low, high_seconds=high, waited_seconds=waited_seconds,
    )  # fmt: skip


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
    assert found.record == f"the last {FEW} held 0 %"
    assert found.row.drawn_high_seconds == plain.row.drawn_high_seconds


gangs = st.tuples(st.integers(1, 3), st.integers(1, 2), st.none() | st.floats(1, 1e5))


@settings(max_examples=40, deadline=None)
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
            assert found.starts.high_seconds is not None, "Span checks the order of its own ends"
            assert found.ends.low_seconds >= found.starts.low_seconds
            assert found.ends.high_seconds >= found.starts.high_seconds


def test_those_who_usually_come_may_go_first() -> None:
    """Bob has used nothing, and submits a job a minute: his are served before Alice's."""
    cluster = Cluster(node("n1", gpus=1))
    cluster.up(cluster.submit(gang("train-1")))
    waiting = cluster.submit(gang("train-2"))
    runs = [replace(ended("train", 4000.0), submitted_at=cluster.wall - 12_000.0)]
    alone = asked(cluster, waiting, runs)
    bob = UserName("bob")
    came = [
        replace(ended("bob", 3000.0), user=bob, submitted_at=cluster.wall - 60.0 * minute)
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
    cluster.wish(SetQueues(queues=(Queue(name=DEFAULT_QUEUE, policy=Policy.BACKFILL),), whole=True))
    cluster.up(cluster.submit(gang("runs", max_duration_seconds=1000.0)))
    cluster.submit(gang("big", nodes=2, max_duration_seconds=500.0))
    spec = gang("small", max_duration_seconds=1800.0)
    waiting = cluster.submit(spec)
    shorter = replace(spec, max_duration_seconds=900.0)
    runs = [ended("runs", 1000.0), ended("big", 500.0, nodes=2)]
    found = asked(cluster, waiting, runs, instead=[("with a limit of 15 min", shorter)])
    assert found is not None
    assert found.starts.low_seconds > 400
    assert [one.change for one in found.instead] == ["with a limit of 15 min"]
    assert found.instead[0].starts.high_seconds == 0.0
