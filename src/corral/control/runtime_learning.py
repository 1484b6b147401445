"""Learning of run times from ended jobs: from the recorded jobs when a head begins to
lead, then from each commit."""

from collections.abc import Iterable

from corral.domain.run_history import Ran
from corral.domain.world import Changes, World
from corral.ports.store import Store
from corral.reconcile import Now
from corral.reconcile.attained_service import ended_before, ended_of, live_of
from corral.schedule.prediction.runtime_model import MOST_ENDED, Learned, Lessons


class HeadLearning:
    """Knowledge of one head about run times. `runs` are the recorded jobs that have
    ended, in any order; `table` has the statistics that were computed from them."""

    def __init__(self, runs: Iterable[Ran], world: World, now: Now) -> None:
        self._lessons = Lessons(ended_before(runs), lambda: live_of(world, now.wall))

    @property
    def table(self) -> Learned | None:
        return self._lessons.table

    def take_in(self, world: World, changes: Changes, now: Now) -> None:
        """Apply the committed changes to the world, and learn from the jobs that have
        ended by them."""
        changed_jobs = [job for job in changes.jobs if job.id not in world.ended]
        world.apply(changes)
        ended_jobs = [
            ended_job
            for job in changed_jobs
            if (ended_job := ended_of(job)) is not None
        ]
        self._lessons.learn(ended_jobs, now.serving, lambda: live_of(world, now.wall))


async def learned_of(store: Store, world: World, now: Now) -> HeadLearning:
    """Return a HeadLearning from all ended jobs in the store: the cluster's own jobs
    and imported ones."""
    return HeadLearning(await store.runs(limit=MOST_ENDED), world, now)
