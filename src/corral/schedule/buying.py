"""By attained service: a gang may buy the place of a running one of its queue and priority.

The rule of `preempt` for live gangs. It must be better by the margin and by what the victim's
restart costs, and it must have waited as long as all the restarts take, shared out over its own
GPUs: so no more GPU time is ever lost by it than takers have waited for. Nobody takes from a user
who has had less, and nobody from a job within its guard.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from corral.domain.ids import JobId
from corral.domain.queue import Policy, Preempt
from corral.domain.resources import Shape
from corral.domain.units import MILLIS_PER_GPU
from corral.schedule.keys import Keys, class_of, weight_of
from corral.schedule.learned import Class
from corral.schedule.running import Running
from corral.schedule.standing import Standing
from corral.schedule.waiting import Waiting

MARGIN: Final = 1.25  # a taker's key must be so many times better


@dataclass(frozen=True, slots=True)
class Buying:
    """As things stand in one pass, at `now` (wall clock)."""

    standing: Standing
    keys: Keys
    now: float
    _offers: dict[JobId, float] = field(default_factory=dict)
    _worths: dict[JobId, float] = field(default_factory=dict)

    def may_buy(self, gang: Waiting) -> bool:
        """Whether gangs of its queue give way by service at all."""
        orders = self.keys.is_taught and self.keys.policy(gang.queue) == Policy.DEFAULT
        return orders and self.standing.tree.queue(gang.queue).preempt != Preempt.NEVER

    def may_take(self, gang: Waiting, victim: Running) -> bool:
        """Whether the gang's key is better by enough; not yet whether it has paid."""
        if (victim.queue, victim.priority) != (gang.queue, gang.priority):
            return False
        rule = self.standing.tree.queue(gang.queue).preempt
        if not victim.guard_over or not (rule == Preempt.ANY or victim.can_save):
            return False
        if victim.protected_until is not None and self.now < victim.protected_until:
            return False
        return self._is_better(gang, victim) and self._has_had_less(gang, victim)

    def has_paid(self, gang: Waiting, shape: Shape, victims: Iterable[Running]) -> bool:
        """Whether it has waited as long as they need to get back to where they are."""
        price = sum(one.price_gpu_seconds for one in victims)
        gpus = shape.nodes * shape.resources.gpu_millis / MILLIS_PER_GPU
        return max(0.0, self.now - gang.since) * gpus >= price

    def _is_better(self, gang: Waiting, victim: Running) -> bool:
        return self._offer(gang) * MARGIN < self._worth(victim)

    def _offer(self, gang: Waiting) -> float:
        """Its key, with what it takes to get it back to where it was."""
        if gang.job not in self._offers:
            back = gang.restart_seconds * weight_of(class_of(gang).gpu_millis)
            self._offers[gang.job] = self.keys.of_waiting(gang) + back
        return self._offers[gang.job]

    def _worth(self, victim: Running) -> float:
        """Its key, less what it takes to get it back to where it is."""
        if victim.job not in self._worths:
            asked, weight = Class(victim.queue, victim.gpu_millis), weight_of(victim.gpu_millis)
            back = victim.price_gpu_seconds * MILLIS_PER_GPU / max(1, victim.gpu_millis) * weight
            self._worths[victim.job] = (
                self.keys.of_service(asked, victim.served_by(self.now)) - back
            )
        return self._worths[victim.job]

    def _has_had_less(self, gang: Waiting, victim: Running) -> bool:
        """In the line the gang's user would come before the victim's, or he is the same."""
        if gang.user == victim.user:
            return True
        share = self.standing.user_share
        return share((gang.queue, gang.user)) <= share((victim.queue, victim.user))
