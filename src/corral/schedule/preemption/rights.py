"""Rights by which a gang takes GPUs from a running gang: to reclaim its queue's own
quota, because of lower priority, or because the running job is preemptible."""

from collections.abc import Callable

from corral.domain.ids import QueueName
from corral.domain.queue_policy import Preempt
from corral.domain.usage import PreemptWhy
from corral.schedule.quota.balances import Standing
from corral.schedule.running import RunningGang
from corral.schedule.waiting import Waiting

Gpus = tuple[tuple[str, int], ...]


class PreemptionRights:
    """Answers, during one scheduling pass, whether a waiting gang may stop a running
    gang, and by which right (`PreemptWhy`).

    The answers depend on what queues hold (`Standing`) and are cached until that
    changes.
    """

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._paths: dict[QueueName, tuple[QueueName, ...]] = {}
        self._known: dict[tuple[object, ...], bool] = {}

    def right(
        self, gang: Waiting, asked: Gpus, victim: RunningGang
    ) -> PreemptWhy | None:
        """Return the right by which the gang, which requests the GPUs `asked`, may stop
        the victim and all gangs of the victim's queue, priority and kind. Return None
        if it has no right."""
        if victim.preemptible:
            return PreemptWhy.PREEMPTIBLE
        if victim.queue == gang.queue:
            rule = self._standing.tree.queue(gang.queue).preempt
            loses_little = rule == Preempt.SAVING and victim.can_save
            lower = victim.priority < gang.priority
            may = lower and (rule == Preempt.ANY or loses_little)
            return PreemptWhy.PRIORITY if may else None
        return (
            PreemptWhy.RECLAIM
            if self._can_reclaim_cached(gang, asked, victim.queue)
            else None
        )

    def could_ever(self, gang: Waiting, victim: RunningGang) -> bool:
        """Return whether the gang could ever have a right to stop the victim, whatever
        queues hold and whatever the gang asks for."""
        return victim.queue != gang.queue or self.right(gang, (), victim) is not None

    def _can_reclaim_cached(self, gang: Waiting, asked: Gpus, queue: QueueName) -> bool:
        """Return whether the gang may reclaim from the queue, as `_can_reclaim`; cached
        until holdings change."""
        return self._cached_result("borrows", gang, asked, queue, self._can_reclaim)

    def _is_within(self, gang: Waiting, asked: Gpus, level: QueueName) -> bool:
        """Return whether the queue `level` stays within its own quota, cached until
        holdings change."""
        return self._cached_result("within", gang, asked, level, self._is_within_level)

    def _is_within_level(self, gang: Waiting, asked: Gpus, level: QueueName) -> bool:
        return self._standing.is_within(gang.queue, asked, level)

    def _cached_result(
        self,
        what: str,
        gang: Waiting,
        asked: Gpus,
        queue: QueueName,
        find: Callable[[Waiting, Gpus, QueueName], bool],
    ) -> bool:
        key = (self._standing.version, what, gang.queue, asked, queue)
        if key not in self._known:
            self._known[key] = find(gang, asked, queue)
        return self._known[key]

    def _can_reclaim(self, gang: Waiting, asked: Gpus, queue: QueueName) -> bool:
        """Return whether the gang may reclaim GPUs that the other queue holds. The rule
        compares the two queues where their paths in the tree separate. The gang's side
        must be within its own quota and owe nothing. The other side must be beyond its
        own quota, or owe."""
        standing = self._standing
        own_path, their_path = self._path(gang.queue), self._path(queue)
        shared_depth = 0
        while (
            shared_depth < min(len(own_path), len(their_path))
            and own_path[shared_depth] == their_path[shared_depth]
        ):
            shared_depth += 1
        if shared_depth == len(own_path) or not any(millis for _, millis in asked):
            return False
        branch = own_path[shared_depth]
        if branch in standing.owing or not self._is_within(gang, asked, branch):
            return False
        if shared_depth == len(their_path):
            # It runs in a queue above the gang's, on the capacity that this one shares.
            return not standing.is_within(gang.queue, asked, their_path[-1])
        return standing.gives_back(their_path[shared_depth])

    def _path(self, queue: QueueName) -> tuple[QueueName, ...]:
        if queue not in self._paths:
            self._paths[queue] = tuple(
                ancestor.name for ancestor in self._standing.tree.path(queue)
            )
        return self._paths[queue]
