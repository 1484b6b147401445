"""What a queue does not take, and which change of the queues is refused."""

from dataclasses import replace
from typing import Any

import pytest

from corral.control.job_reasons import assumed_text
from corral.control.queue_checks import (
    QueueRule,
    QuotaExceeded,
    check_queues,
    warnings_of,
)
from corral.control.request_checks import (
    check_asked,
    check_moments,
    check_specs,
    normal,
    plan,
)
from corral.domain.errors import Conflict, NotFound, SpecInvalid
from corral.domain.ids import QueueName, UserName
from corral.domain.placement_constraints import PlaceRule
from corral.domain.queue import Budget, Queue
from corral.domain.queue_policy import Policy
from corral.domain.requests import SetQueues
from corral.domain.time_point import EndWarning, Moment
from corral.reconcile import Now
from corral.schedule.prediction.runtime_model import Class, Ended, Learned
from tests.worlds import ALICE, Cluster, gang, node

NOW = Now(wall=0.0, serving=0.0)
TOP = Queue(name=QueueName("top"), longest_seconds=3600.0, highest_priority=0)
TEAM = Queue(
    name=QueueName("team"),
    parent=TOP.name,
    borrow_limit_millis=2000,
    most_per_user_millis=1000,
    lowest_priority=-100,
)


def house() -> Cluster:
    cluster = Cluster(node("n1", gpus=8))
    cluster.request(SetQueues(queues=(TOP, TEAM), whole=True))
    return cluster


def test_a_queue_that_is_not_there_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(NotFound) as refused:
        check_specs(house().world, [gang(queue="taem")], {})
    assert "team" in refused.value.hint
    assert "corral queue ls; or create it: corral queue set taem" in refused.value.hint


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"max_duration_seconds": 7200.0}, "allows at most 1 h"),
        ({"priority": 100}, "allows up to normal"),
        ({"priority": -101}, "allows low and above"),
    ],
)
def test_a_job_that_the_queue_or_one_above_it_does_not_take_is_refused(
    asked: dict[str, Any], text: str
) -> None:
    with pytest.raises(QueueRule, match=text):
        check_specs(house().world, [gang(queue="team", **asked)], {})


def test_a_job_that_no_wait_would_make_fit_its_queue_is_refused() -> None:
    with pytest.raises(QuotaExceeded, match="may borrow at most 2"):
        check_specs(house().world, [gang(queue="team", gpus=3)], {})
    with pytest.raises(QuotaExceeded, match="one user may use at most 1"):
        check_specs(house().world, [gang(queue="team", gpus=2)], {})
    check_specs(house().world, [gang(queue="team", gpus=1)], {})


def test_a_job_without_a_duration_gets_the_shortest_of_its_queues() -> None:
    world = house().world
    assert normal(world, gang(queue="team")).max_duration_seconds == 3600.0
    assert (
        normal(world, gang(queue="team", max_duration_seconds=5.0)).max_duration_seconds
        == 5.0
    )
    assert normal(world, gang()).max_duration_seconds is None


def test_the_queues_are_those_of_the_next_tick_and_the_change_is_told() -> None:
    cluster = house()
    assert list(cluster.world.queues.by_name) == ["default", "top", "team"]
    assert cluster.outcome is not None
    assert [event.kind for event in cluster.outcome.changes.events] == ["queues"]
    cluster.request(
        SetQueues(
            queues=(replace(TEAM, weight=3.0),), whole=False, min_runtime_seconds=5.0
        )
    )
    assert cluster.world.queues.queue(TEAM.name).weight == 3.0
    assert cluster.world.queues.min_runtime_seconds == 5.0


def test_a_tree_that_cannot_be_is_refused_and_one_that_came_through_changes_nothing() -> (
    None
):
    cluster = house()
    lost = SetQueues(queues=(replace(TEAM, parent=QueueName("gone")),), whole=False)
    with pytest.raises(SpecInvalid, match="no queue gone"):
        check_asked(cluster.world, lost, NOW)
    cluster.request(lost)
    assert cluster.world.queues.queue(TEAM.name) == TEAM
    assert cluster.outcome is not None
    assert [event.kind for event in cluster.outcome.changes.events] == [
        "queues_refused"
    ]


def test_a_queue_with_unfinished_jobs_is_not_taken_away() -> None:
    cluster = house()
    cluster.submit(gang(queue=QueueName("team")))
    with pytest.raises(
        Conflict, match="team cannot be removed: it has 1 unfinished job"
    ):
        check_asked(cluster.world, SetQueues(queues=(TOP,), whole=True), NOW)


def test_a_dry_run_is_decided_as_the_asker_s() -> None:
    """Alice has the one GPU that a user may have in the queue; Bob has none."""
    cluster = house()
    cluster.submit(gang(queue="team"))
    now = Now(wall=cluster.wall, serving=cluster.serving)
    [hers] = plan(cluster.world, cluster.facts, [gang(queue="team")], now, by=ALICE)
    [his] = plan(
        cluster.world, cluster.facts, [gang(queue="team")], now, by=UserName("bob")
    )
    assert hers.reason is not None
    assert hers.reason.code == "UserLimit"
    assert his.reason is None


def test_a_job_that_should_have_started_already_is_refused() -> None:
    check_moments(
        [gang(start_by=Moment(after_seconds=60.0)), gang(start_by=Moment(at=9.0))], 5.0
    )
    with pytest.raises(SpecInvalid, match="start_by is .* in the past"):
        check_moments([gang(start_by=Moment(at=5.0))], 5.0)


@pytest.mark.parametrize(
    ("nominal", "said"),
    [
        ((("any", 8000),), ""),
        ((("any", 9000),), "the queues own 9 GPUs together; the cluster has 8"),
        ((("a100", 1000),), "the queues own 1 a100 GPUs; the cluster has 0"),
    ],
)
def test_queues_that_own_more_than_there_is_are_taken_with_a_warning(
    nominal: tuple[tuple[str, int], ...], said: str
) -> None:
    cluster = Cluster(node("n1", gpus=8))
    rich = Queue(name=QueueName("rich"), nominal=nominal)
    asked = SetQueues(queues=(rich, replace(TEAM, parent=rich.name)), whole=True)
    tree = check_queues(cluster.world, asked, 0.0)
    found = warnings_of(cluster.world, tree)
    assert [one.startswith(said) for one in found] == [True] * bool(said)


def test_a_budget_that_is_over_before_it_begins_is_refused_and_an_old_one_may_stay() -> (
    None
):
    cluster = Cluster(node("n1", gpus=8))
    dated = Queue(name=QueueName("dated"), budget=Budget(gpu_hours=1.0, until=100.0))
    asked = SetQueues(queues=(dated,), whole=False)
    with pytest.raises(
        SpecInvalid,
        match="dated: budget: until is 1970-01-01 00:01:40 UTC, which is in the",
    ):
        check_queues(cluster.world, asked, 100.0)
    assert (
        check_queues(cluster.world, asked, 99.0).queue(dated.name).budget
        == dated.budget
    )
    cluster.request(asked)
    asked = replace(asked, queues=(replace(dated, weight=2.0),))
    assert check_queues(cluster.world, asked, 100.0).queue(dated.name).weight == 2.0
    other = replace(dated, budget=Budget(gpu_hours=1.0, until=50.0))
    with pytest.raises(SpecInvalid, match="00:00:50 UTC, which is in the past"):
        check_queues(cluster.world, replace(asked, queues=(other,)), 100.0)


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ({"nominal": (("any", 1000),)}, "run: corral queue set top --gpus"),
        (
            {"nominal": (("any", 9000),), "parent": None, "lend_limit_millis": 10_000},
            "--lend 9",
        ),
        (
            {"budget": Budget(period_seconds=60.0)},
            "set team --gpu-hours 1000 --period 1m",
        ),
        ({"lowest_priority": 5, "highest_priority": 1}, "--priorities low..normal"),
    ],
)
def test_one_queue_that_cannot_be_is_refused_with_the_command_that_mends_it(
    asked: dict[str, Any], hint: str
) -> None:
    request = SetQueues(queues=(replace(TEAM, **asked),), whole=False)
    with pytest.raises(SpecInvalid) as refused:
        check_queues(house().world, request, 0.0)
    assert hint in refused.value.hint


def test_a_warning_needs_an_end_which_the_queue_may_give() -> None:
    world = Cluster(node("n1", gpus=8)).world
    warned = gang(warn=EndWarning(signal=10))
    with pytest.raises(SpecInvalid, match="no end to warn of") as refused:
        check_specs(world, [normal(world, warned)], {})
    assert "--time 4h" in refused.value.hint
    check_specs(world, [normal(world, replace(warned, max_duration_seconds=9.0))], {})
    world = house().world
    check_specs(world, [normal(world, replace(warned, queue=TOP.name))], {})


def test_a_dry_run_tells_whom_it_would_stop() -> None:
    cluster = Cluster(node("n1", gpus=2))
    owners = tuple(
        Queue(name=QueueName(name), nominal=(("any", millis),))
        for name, millis in (("own", 2000), ("poor", 0))
    )
    cluster.request(SetQueues(queues=owners, whole=True))
    borrows = cluster.submit(gang("long", gpus=2, queue="poor"))
    cluster.up(borrows)
    for seconds, when in (
        (1.0, "in 119 s, after its minimum run time"),
        (200.0, "at once"),
    ):
        cluster.tick(seconds=seconds)
        now = Now(wall=cluster.wall, serving=cluster.serving)
        (mine,) = plan(
            cluster.world, cluster.facts, [gang(gpus=2, queue="own")], now, by=ALICE
        )
        assert mine.stops == (
            f"{borrows} of queue poor (long, on borrowed GPUs), {when}",
        )
        assert mine.reason is not None
        said = f"2 GPUs are kept for the job, and are being freed by long ({borrows})"
        assert mine.reason.sentence == said
        (theirs,) = plan(
            cluster.world, cluster.facts, [gang(queue="poor")], now, by=ALICE
        )
        assert theirs.stops == ()


def ended(user: UserName, stem: str, seconds: float) -> Ended:
    size = Class(QueueName("quick"), 1000)
    return Ended(job_class=size, user=user, stem=stem, seconds=seconds)


@pytest.mark.parametrize(
    ("runs", "limit_seconds", "said"),
    [
        (
            [],
            None,
            "unknown, because no job has ended yet and this one has no limit",
        ),
        ([], 600.0, "10 min, the limit of the job: no job has ended yet"),
        (
            [(ALICE, "gpt", 120.0)],
            600.0,
            "2 min, judging by one ended job of the same user, name and size",
        ),
        (
            [(ALICE, "gpt", 900.0)],
            600.0,
            "10 min, the limit of the job: similar jobs took longer",
        ),
        (
            [(ALICE, "else", 60.0)] * 2,
            None,
            "1 min, judging by 2 ended jobs of the same user and size",
        ),
        (
            [(UserName("bob"), "x", 60.0)] * 2,
            None,
            "1 min, judging by 2 ended jobs of the same queue and",
        ),
    ],
)
def test_a_queue_that_goes_by_length_tells_what_it_assumes(
    runs: list[tuple[UserName, str, float]], limit_seconds: float | None, said: str
) -> None:
    cluster = Cluster(node("n1", gpus=1))
    cluster.request(
        SetQueues(
            queues=(Queue(name=QueueName("quick"), policy=Policy.SJF),), whole=True
        )
    )
    cluster.submit(gang("first"))
    spec = gang("gpt-7", queue="quick", max_duration_seconds=limit_seconds)
    waits, other = cluster.submit(spec), cluster.submit(gang("gpt-8"))
    learned = Learned(ended(*one) for one in runs)
    assert assumed_text(cluster.world, cluster.world.jobs[waits], learned).startswith(
        said
    )
    assert assumed_text(cluster.world, cluster.world.jobs[other], learned) == ""


def test_an_exclusive_job_that_its_queue_could_never_hold_whole_is_refused() -> None:
    spec = gang(queue="team", place=PlaceRule(exclusive=True))
    with pytest.raises(
        QuotaExceeded, match=r"asks for 8 GPUs \(all GPUs of exclusive nodes count\)"
    ):
        check_specs(house().world, [spec], {})
    check_specs(house().world, [gang(queue="team")], {})
