"""A waiting job is changed, and one that has begun is not."""

import pytest

from corral.control.request_checks import check_asked
from corral.domain.attempt import Exit
from corral.domain.errors import Conflict, NotFound
from corral.domain.ids import JobId, QueueName
from corral.domain.job_states import JobState
from corral.domain.requests import SetJob
from corral.reconcile import Now
from tests.worlds import Cluster, gang, node


def test_what_is_named_of_a_waiting_job_is_so_from_the_next_pass_on() -> None:
    cluster = Cluster(node("n1"))
    runs = cluster.submit(gang("runs", gpus=2))
    cluster.up(runs)
    first, second = cluster.submit(gang("a", gpus=2)), cluster.submit(gang("b", gpus=2))
    cluster.request(
        SetJob(job=second, name="big", priority=5, max_duration_seconds=60.0)
    )
    spec = cluster.world.jobs[second].spec
    assert (spec.name, spec.priority, spec.max_duration_seconds) == ("big", 5, 60.0)
    assert (spec.resources, spec.queue) == (gang("b", gpus=2).resources, gang().queue)
    cluster.request(SetJob(job=runs, name="other"))
    assert cluster.world.jobs[runs].spec.name == "runs"
    cluster.end(runs, Exit(code=0))
    states = [cluster.world.jobs[id].state for id in (first, second)]
    assert states == [JobState.QUEUED, JobState.STARTING]


def test_a_job_of_an_array_keeps_its_index_in_its_name() -> None:
    asked = SetJob(job=JobId("j1_3"), name="new")
    assert asked.of(gang("old_3", array_index=3)).name == "new_3"
    assert str(SetJob(job=JobId("j1"), priority=0, max_duration_seconds=7200.0)) == (
        "priority: 0, max_duration: 2h"
    )


def test_what_cannot_be_changed_is_refused() -> None:
    cluster = Cluster(node("n1"))
    runs = cluster.submit(gang("runs", gpus=2))
    waits = cluster.submit(gang("waits", gpus=2))
    now = Now(wall=cluster.wall, serving=cluster.serving)
    check_asked(cluster.world, SetJob(job=waits, priority=2), now)
    with pytest.raises(Conflict, match="only a waiting job"):
        check_asked(cluster.world, SetJob(job=runs, priority=2), now)
    with pytest.raises(NotFound):
        check_asked(cluster.world, SetJob(job=waits, queue=QueueName("none")), now)
    with pytest.raises(NotFound):
        check_asked(cluster.world, SetJob(job=JobId("j99"), priority=2), now)
