"""What jobs that save say to the head, and where they stand."""

from corral.domain.attempt import Exit, Save
from corral.domain.ids import JobId
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase, Progress
from corral.domain.receipt import Receipt
from corral.reconcile.attempts import EXIT_STOPPED
from tests.worlds import Cluster

SAVED = Exit(code=EXIT_STOPPED, at=1.0)


def save_of(cluster: Cluster, id: JobId, step: int) -> Save:
    return Save(
        job=id, attempt=cluster.world.attempts[id].number, step=step, path=f"/shared/ckpt/{step}",
        manifest_sha256="0" * 64, size_bytes=1, seconds=0.1, stall_seconds=0.0, at=cluster.wall,
    )  # fmt: skip


def gone(cluster: Cluster, id: JobId, *, step: int) -> list[Receipt]:
    """It has saved when it was told to, and is seen gone; the receipts that follow."""
    cluster.say(
        id, Phase.ENDED, exits=((0, SAVED),), progress=Progress(step=step, at=cluster.wall),
        saves=(save_of(cluster, id, step),),
    )  # fmt: skip
    return list(cluster.tick().changes.receipts)


def state(cluster: Cluster, id: JobId) -> JobState:
    found = cluster.world.state_of(id)
    assert found is not None
    return found
