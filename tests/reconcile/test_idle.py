"""A job that runs nothing on its GPUs: noted, warned, then suspended, and only by a
rule."""

from dataclasses import replace

import pytest

from corral.domain.attempt import Attempt, Exit
from corral.domain.idle_policy import IdleRule
from corral.domain.ids import JobId, QueueName
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase
from corral.domain.queue import Queue
from corral.domain.requests import SetQueues
from tests.worlds import SAVING, Cluster, gang, node

RULE = IdleRule(warn_seconds=900.0, reclaim_seconds=3600.0)
TOP, TEAM = QueueName("top"), QueueName("team")


class Idler:
    """A job in a queue below one with a rule; its sensors say since when it is idle."""

    def __init__(self, rule: IdleRule | None = RULE) -> None:
        self.cluster = Cluster(node("n1"))
        self.told: list[tuple[str, str]] = []
        queues = (Queue(name=TOP, idle=rule), Queue(name=TEAM, parent=TOP))
        self.cluster.request(SetQueues(queues=queues, whole=True))
        self.job: JobId = self.cluster.submit(gang(queue=TEAM, checkpoint=SAVING))
        self.cluster.up(self.job)

    def say(self, since: float | None) -> None:
        self.cluster.facts.idle[self.job, self.attempt.number] = since

    def wait(self, seconds: float) -> None:
        outcome = self.cluster.tick(seconds=seconds)
        self.told += [(one.kind, one.text) for one in outcome.changes.events]

    @property
    def attempt(self) -> Attempt:
        return self.cluster.world.attempts[self.job]

    @property
    def state(self) -> str:
        return self.cluster.world.jobs[self.job].state

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.told]


def test_it_is_warned_once_then_suspended_with_a_receipt_and_the_reason() -> None:
    idler = Idler()
    idler.say(idler.cluster.wall)
    for seconds in (890.0, 20.0, 20.0):
        idler.wait(seconds)
    assert idler.kinds == ["idle_warned"]
    assert "will be suspended in 45 min" in idler.told[0][1]
    idler.wait(2000.0)
    assert idler.state == JobState.RUNNING
    idler.wait(1000.0)
    assert idler.state == JobState.STOPPING
    idler.cluster.end(idler.job, Exit(code=75, at=idler.cluster.wall))
    job = idler.cluster.world.jobs[idler.job]
    assert job.state == JobState.SUSPENDED
    assert "has run nothing on its GPUs since" in job.reason
    assert f"corral resume {idler.job}" in job.reason
    assert idler.cluster.outcome is not None
    receipts = idler.cluster.outcome.changes.receipts
    assert [one.kind for one in receipts] == ["suspension"]


def test_one_that_works_again_is_let_be_and_begins_anew() -> None:
    idler = Idler()
    idler.say(idler.cluster.wall)
    idler.wait(3000.0)
    assert idler.attempt.idle_warned_at is not None
    idler.say(None)
    idler.wait(10.0)
    attempt = idler.attempt
    assert [attempt.idle_since, attempt.idle_warned_at] == [None, None]
    idler.say(idler.cluster.wall)
    idler.wait(1000.0)
    assert idler.kinds.count("idle_warned") == 2
    assert idler.state == JobState.RUNNING


@pytest.mark.parametrize("rule", [None, IdleRule(warn_seconds=60.0)])
def test_without_a_rule_to_reclaim_nobody_is_stopped(rule: IdleRule | None) -> None:
    idler = Idler(rule)
    idler.say(idler.cluster.wall)
    for _ in range(5):
        idler.wait(86400.0)
    assert idler.state == JobState.RUNNING
    assert idler.kinds == ([] if rule is None else ["idle_warned"])
    assert idler.attempt.idle_since is not None, "since when is told all the same"


def test_a_warning_comes_its_time_before_the_end_also_where_the_head_was_away() -> None:
    idler = Idler()
    idler.say(idler.cluster.wall)
    idler.wait(100.0)
    idler.wait(86400.0)
    assert (idler.kinds, idler.state) == (["idle_warned"], JobState.RUNNING)
    idler.wait(2600.0)
    assert idler.state == JobState.RUNNING
    idler.wait(200.0)
    assert idler.state == JobState.STOPPING


def test_what_was_noted_stands_until_sensors_speak_anew() -> None:
    idler = Idler()
    began = idler.cluster.wall
    idler.say(began)
    idler.wait(100.0)
    assert idler.attempt.idle_since == began
    idler.cluster.facts.idle.clear()  # a new head
    idler.wait(900.0)
    assert idler.kinds == ["idle_warned"]
    idler.say(idler.cluster.wall)
    idler.wait(10.0)
    assert idler.attempt.idle_since == began


def test_without_sensors_and_before_it_runs_nobody_is_idle() -> None:
    idler = Idler()
    idler.wait(86400.0)
    assert idler.attempt.idle_since is None
    starting = Idler()
    starting.say(0.0)
    job = starting.cluster.world.jobs[starting.job]
    starting.cluster.world.jobs[starting.job] = replace(job, state=JobState.STARTING)
    starting.cluster.say(starting.job, Phase.STARTING)
    starting.wait(86400.0)
    assert starting.kinds == []


@pytest.mark.parametrize(
    "spans",
    [{}, {"warn_seconds": 30.0}, {"warn_seconds": 900.0, "reclaim_seconds": 100.0}],
)
def test_a_rule_warns_before_it_reclaims_and_neither_at_once(
    spans: dict[str, float],
) -> None:
    with pytest.raises(ValueError, match="must be at least 60 s, and warn not later"):
        IdleRule(**spans)
