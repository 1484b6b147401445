"""Small logs of jobs."""

from collections.abc import Sequence

from corral.replay.workload import Workload


def workload_of(jobs: Sequence[tuple[float, float, int]]) -> Workload:
    """Of (submitted at second, seconds, GPUs), in any order, in one queue."""
    ranked = sorted(jobs)
    return Workload(
        submits=[at for at, _, _ in ranked],
        durations=[seconds for _, seconds, _ in ranked],
        gpus=[gpus for _, _, gpus in ranked],
        queues=[0] * len(ranked),
    )
