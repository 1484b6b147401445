"""An elastic job gives nodes instead of its life, and goes on with the others."""

from corral.domain.elastic import Elastic
from corral.domain.job_states import JobState
from corral.domain.receipt import ReceiptKind
from tests.reconcile.saving import gone, state
from tests.reconcile.test_preempt import (
    MIN_RUNTIME,
    SPEECH,
    VISION,
    house,
    run_on,
    submit,
)
from tests.worlds import SAVING


def test_an_elastic_gang_gives_the_nodes_that_are_needed_and_goes_on_with_the_rest() -> (
    None
):
    cluster = house()
    wide = submit(
        cluster,
        SPEECH,
        4,
        nodes=2,
        elastic=Elastic(min_nodes=1, max_nodes=2),
        checkpoint=SAVING,
    )
    for _ in range(3):
        cluster.tick(seconds=MIN_RUNTIME / 2)
    run_on(cluster, wide, 10)
    owner = submit(cluster, VISION, 4)
    assert state(cluster, wide) == JobState.STOPPING
    receipts = {one.job: one for one in gone(cluster, wide, step=12)}
    assert receipts[wide].kind == ReceiptKind.SHRINK
    assert f"gives 1 of 2 nodes to vision-4 ({owner})" in receipts[wide].text
    assert "took 1 of 2 nodes (4 GPUs)" in receipts[owner].text
    cluster.tick()
    assert state(cluster, owner) == JobState.STARTING
    assert state(cluster, wide) == JobState.STARTING
    assert len(cluster.world.attempts[wide].seats) == 1
    job = cluster.world.jobs[wide]
    assert (job.infra_retries, job.user_retries) == (0, 0)
