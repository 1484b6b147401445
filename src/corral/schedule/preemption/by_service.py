"""Preemption by attained service.

A gang may take the seats of a running gang of its own queue and priority. The victim
may also be of another queue that borrows or owes, if both queues are ordered by service
together.

The rule is that of `preempt`, for live gangs. The gang's key must be better than the
victim's by the margin and by the cost of the victim's restart. It must also have waited
as long as all the restarts take, divided by its own number of GPUs. The GPU time lost
is therefore never more than the time that preemptors have waited. If shares count, no
gang preempts a user with less service. No gang preempts a job within its minimum run
time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from corral.domain.ids import JobId, QueueName
from corral.domain.queue_policy import Policy, Preempt
from corral.domain.resources import Shape
from corral.domain.units import MILLIS_PER_GPU
from corral.schedule.order.priority_key import PriorityKeys, class_of, weight_of
from corral.schedule.prediction.runtime_model import Class
from corral.schedule.quota.balances import Standing
from corral.schedule.running import RunningGang
from corral.schedule.waiting import Waiting

MARGIN: Final = 1.25  # minimum factor by which a preemptor's key must be better


@dataclass(frozen=True, slots=True)
class Buying:
    """Decides in one scheduling pass which gangs may preempt others because they have
    received less service; `now` is the wall clock."""

    standing: Standing
    keys: PriorityKeys
    now: float
    _buyers: dict[QueueName, bool] = field(default_factory=dict)
    _offers: dict[JobId, float] = field(default_factory=dict)
    _worths: dict[JobId, float] = field(default_factory=dict)
    _parted: dict[tuple[QueueName, QueueName], QueueName | None] = field(
        default_factory=dict
    )

    def may_buy(self, gang: Waiting) -> bool:
        """Return whether the policy and the rules of the gang's queue allow it to
        preempt by service."""
        queue = gang.queue
        if queue not in self._buyers:
            orders = self.keys.is_taught and self.keys.policy(queue).goes_by_service
            self._buyers[queue] = orders and self._rule(queue) != Preempt.NEVER
        return self._buyers[queue]

    def may_take(self, gang: Waiting, victim: RunningGang) -> bool:
        """Return whether the gang's key is better than the victim's by enough; whether
        the gang has waited long enough is a separate check."""
        if victim.priority != gang.priority or not self.is_for_sale(victim):
            return False
        is_better = self.offer(gang) * MARGIN < self.worth(victim)
        may_deal = is_better and self.has_had_less(gang, victim)
        return may_deal and self.deals(gang.queue, victim.queue)

    def is_for_sale(self, victim: RunningGang) -> bool:
        """Return whether this victim may be preempted by service now by a gang with a
        better key."""
        if victim.preemptible or not victim.min_runtime_over:
            return False
        if not (victim.can_save or self._rule(victim.queue) == Preempt.ANY):
            return False
        return victim.protected_until is None or self.now >= victim.protected_until

    def has_paid(self, gang: Waiting, shape: Shape, price_gpu_seconds: float) -> bool:
        """Return whether the gang has waited long enough to preempt these victims: its
        waiting time times its GPUs must be at least `price_gpu_seconds`, the cost of
        restoring their state."""
        gpus = shape.nodes * shape.resources.gpu_millis / MILLIS_PER_GPU
        return max(0.0, self.now - gang.since) * gpus >= price_gpu_seconds

    def sellers(self, queue: QueueName) -> Sequence[QueueName]:
        """Return the queues whose gangs this queue may preempt by service: all queues
        that share one order by service with it."""
        return self.standing.tree.sharing_service(queue)

    def delay(self, victim: RunningGang) -> float:
        """Return how costly it is to stop this gang, in a queue ordered by service: the
        gang's GPUs divided by its `worth`. The cost is high if the gang is expected to
        end soon."""
        gpus = max(1, victim.gpu_millis) / MILLIS_PER_GPU
        return gpus / max(1.0, self.worth(victim))

    def deals(self, queue: QueueName, other: QueueName) -> bool:
        """Return whether gangs of this queue may preempt gangs of the other queue by
        service.

        A queue's own quota is protected. Only what the other queue borrows may be
        taken, measured where the paths of both queues up the tree separate, or anything
        while that queue owes.
        """
        if other == queue:
            return True
        if (queue, other) not in self._parted:
            self._parted[queue, other] = self._part(queue, other)
        parted = self._parted[queue, other]
        if parted is None:
            return False
        return (
            parted in self.standing.owing or self.standing.borrowed_millis(parted) > 0
        )

    def _part(self, queue: QueueName, other: QueueName) -> QueueName | None:
        """Return the first queue on the path to the other queue that is not on the path
        to this one; None if the other queue does not share this queue's order by
        service."""
        if other not in self.sellers(queue):
            return None
        queue_names = {ancestor.name for ancestor in self.standing.tree.path(queue)}
        their_path = (ancestor.name for ancestor in self.standing.tree.path(other))
        return next((name for name in their_path if name not in queue_names), None)

    def offer(self, gang: Waiting) -> float:
        """Return the sort key of the waiting gang plus the cost of restoring its state;
        the smaller is better."""
        if gang.job not in self._offers:
            restart_cost = gang.restart_seconds * weight_of(class_of(gang).gpu_millis)
            self._offers[gang.job] = self.keys.of_waiting(gang) + restart_cost
        return self._offers[gang.job]

    def worth(self, victim: RunningGang) -> float:
        """Return the victim's sort key minus the cost of restoring its state; a gang
        with a smaller `offer` may preempt it."""
        if victim.job not in self._worths:
            millis = victim.gpu_millis
            victim_class, weight = Class(victim.queue, millis), weight_of(millis)
            restart_cost = (
                victim.price_gpu_seconds * MILLIS_PER_GPU / max(1, millis) * weight
            )
            self._worths[victim.job] = (
                self.keys.of_service(victim_class, victim.served_by(self.now))
                - restart_cost
            )
        return self._worths[victim.job]

    def _rule(self, queue: QueueName) -> Preempt:
        return self.standing.tree.queue(queue).preempt

    def has_had_less(self, gang: Waiting, victim: RunningGang) -> bool:
        """Return whether the gang's user has no larger share than the victim's user.
        Always True for the same user, and if only service counts."""
        by_service = self.keys.policy(gang.queue) == Policy.ATTAINED
        if by_service or gang.user == victim.user:
            return True
        share = self.standing.user_share
        return share((gang.queue, gang.user)) <= share((victim.queue, victim.user))


def price_of(victims: Iterable[RunningGang]) -> float:
    """Return how many GPU-seconds all victims together need to restore their state
    after the stop."""
    return sum(victim.price_gpu_seconds for victim in victims)
