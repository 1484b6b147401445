"""Automatic actions for the health of nodes, and their bounds."""

from dataclasses import dataclass
from typing import Literal

Mode = Literal["observe", "enforce"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """Rules of automatic health actions.

    `observe`: nothing is cordoned, drained or ended; such actions are only listed.
    `users`: number of users that must see a program fault on one GPU within
    `users_seconds` before the GPU is to blame. `breaker_share`: share of all nodes, but
    at least one node, that may be cordoned automatically within `breaker_seconds`.
    `repeat_seconds`: a fault that recurs within this time gets the next remedy.
    `outbreak_seconds`: signals closer together belong to one outbreak.

    `check_every_seconds`: interval between checks of a node with GPUs while it is idle;
    0: never. A suspected node is checked at once, and again after `retest_seconds`. A
    gang with at least `gang_gpus` GPUs (0: no gang) starts only when its nodes were
    checked within `gang_fresh_seconds`. It waits for `gang_seconds` at most.
    """

    mode: Mode = "enforce"
    users: int = 3
    users_seconds: float = 86400.0
    breaker_share: float = 0.1
    breaker_seconds: float = 300.0
    repeat_seconds: float = 7 * 86400.0
    outbreak_seconds: float = 600.0
    check_every_seconds: float = 86400.0
    retest_seconds: float = 3600.0
    gang_gpus: int = 0
    gang_seconds: float = 60.0
    gang_fresh_seconds: float = 86400.0

    def most(self, nodes: int) -> int:
        """Return how many of `nodes` may be cordoned automatically within the breaker's
        time."""
        return max(1, int(nodes * self.breaker_share))
