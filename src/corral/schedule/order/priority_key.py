"""Sort key of gangs of one priority in one line, by the policy of the line's queue."""

from typing import Final

from corral.domain.ids import JobId, QueueName
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree
from corral.domain.units import MILLIS_PER_GPU
from corral.schedule.prediction.runtime_model import Class, Learned
from corral.schedule.waiting import Waiting

# how a key grows with the GPUs asked for: 0 is time, 1 is GPU time
SIZE_POWER: Final = 0.35
# assumed maximum run time of a job without any record
UNKNOWN_SECONDS: Final = 86_400.0


def weight_of(gpu_millis: int) -> float:
    """Return the size of a gang for sort keys: a power of its GPUs. Without GPUs, it is
    nearly 0."""
    return float((max(1, gpu_millis) / MILLIS_PER_GPU) ** SIZE_POWER)


def class_of(gang: Waiting) -> Class:
    shape = gang.shapes[0]
    return Class(gang.queue, shape.nodes * shape.resources.gpu_millis)


class PriorityKeys:
    """Computes the sort keys of waiting and running gangs; the gang with the smallest
    key goes first. If `learned` is None, no run times are known, and gangs are sorted
    by age alone."""

    def __init__(self, tree: QueueTree, learned: Learned | None) -> None:
        self._tree = tree
        self._learned = learned
        self._of_waiting: dict[JobId, float] = {}

    @property
    def is_taught(self) -> bool:
        return self._learned is not None

    def policy(self, queue: QueueName) -> Policy:
        return self._tree.policy_of(queue)

    def of_waiting(self, gang: Waiting) -> float:
        """Return the key of a waiting gang within one line. It is the same for all
        gangs of a group."""
        if gang.job not in self._of_waiting:
            self._of_waiting[gang.job] = self._of(gang)
        return self._of_waiting[gang.job]

    def _of(self, gang: Waiting) -> float:
        policy = self.policy(gang.queue)
        if self._learned is None or policy.goes_by_age:
            return 0.0
        job_class = class_of(gang)
        if policy == Policy.SJF:
            expected = self._learned.expected_seconds(
                gang.user, gang.stem, job_class, gang.limit_seconds
            )
            return UNKNOWN_SECONDS if expected is None else expected
        return self.of_service(job_class, gang.served_seconds)

    def of_service(self, asked: Class, served_seconds: float) -> float:
        """Return the rank of a class after this service, multiplied by the weight of
        its size. A small rank means that an end is expected soon."""
        if self._learned is None:
            return 0.0
        return self._learned.rank_seconds(asked, served_seconds) * weight_of(
            asked.gpu_millis
        )
