"""Outlier ejection: replicas that fail get no requests until a probe succeeds."""

from collections.abc import Collection
from enum import StrEnum
from math import exp
from typing import Final

PROBE_FIRST_SECONDS: Final = 5.0
PROBE_LONGEST_SECONDS: Final = 60.0
FAILURES_IN_A_ROW: Final = 2  # timeouts or lost connections
ERRORS_IN_A_ROW: Final = 5
ERROR_SHARE: Final = 0.05
ERROR_LEAST: Final = 5.0  # errors within the window, before their share counts
ERROR_RATIO: Final = 3.0  # times the share of errors of the other replicas
ERROR_WINDOW_SECONDS: Final = 30.0
STABLE_SECONDS: Final = 60.0  # after which the delay of probes starts over


class ReplicaFailure(StrEnum):
    """Kind of a request's failure at a replica."""

    REFUSED = "refused"  # the connection was refused: no process listens
    DISCONNECTED = "disconnected"  # the connection was lost before the answer ended
    TIMEOUT = "timeout"  # no first token by its deadline
    ERROR = "error"  # an answer with a status of 500 or above


class _Health:
    """Recent failures of one replica, and the state of its ejection."""

    __slots__ = (
        "_at",
        "errors",
        "errors_in_a_row",
        "failures_in_a_row",
        "is_dead",
        "is_ejected",
        "probe_at",
        "probe_delay",
        "readmitted_at",
        "requests",
    )

    def __init__(self) -> None:
        self._at = 0.0
        self.errors = 0.0
        self.requests = 0.0
        self.errors_in_a_row = 0
        self.failures_in_a_row = 0
        self.is_dead = False
        self.is_ejected = False
        self.probe_at = 0.0
        self.probe_delay = PROBE_FIRST_SECONDS
        self.readmitted_at: float | None = None

    def fade(self, now: float) -> None:
        """Let old requests count for less."""
        if now > self._at:
            factor = exp((self._at - now) / ERROR_WINDOW_SECONDS)
            self.errors *= factor
            self.requests *= factor
            self._at = now

    def reset(self) -> None:
        self.errors = 0.0
        self.requests = 0.0
        self.errors_in_a_row = 0
        self.failures_in_a_row = 0


class OutlierEjection:
    """Ejection of the replicas of one service.

    A replica that refuses connections is dead and is always ejected. Any other replica is
    ejected only while the ejected ones, dead ones included, stay within `max_share`.
    """

    __slots__ = ("_ejected", "_max_share", "_replicas")

    def __init__(self, max_share: float = 0.5) -> None:
        if not 0.0 <= max_share <= 1.0:
            raise ValueError(f"a share is between 0 and 1, not {max_share}")
        self._max_share = max_share
        self._replicas: dict[str, _Health] = {}
        self._ejected: set[str] = set()

    def set_replicas(self, names: Collection[str]) -> None:
        """Set the replicas of the service; the others are forgotten."""
        for name in [name for name in self._replicas if name not in names]:
            del self._replicas[name]
            self._ejected.discard(name)
        for name in names:
            self._health(name)

    def note_success(self, name: str, now: float) -> None:
        """Count a request that the replica answered."""
        health = self._health(name)
        health.fade(now)
        health.requests += 1.0
        health.errors_in_a_row = 0
        health.failures_in_a_row = 0

    def note_failure(self, name: str, kind: ReplicaFailure, now: float) -> bool:
        """Count a failed request. Return whether the replica was ejected because of it."""
        health = self._health(name)
        health.fade(now)
        health.requests += 1.0
        if kind is ReplicaFailure.REFUSED:
            was_ejected = health.is_ejected
            health.is_dead = True
            self._eject(name, health, now)
            return not was_ejected
        if kind is ReplicaFailure.ERROR:
            health.errors += 1.0
            health.errors_in_a_row += 1
        else:
            health.failures_in_a_row += 1
        if health.is_ejected or not self._is_outlier(name, health, now):
            return False
        most = int(self._max_share * len(self._replicas))
        if len(self._ejected) + 1 > most:
            return False
        self._eject(name, health, now)
        return True

    def is_ejected(self, name: str, now: float) -> bool:
        """Return whether the replica gets no requests; only a probe readmits it."""
        return name in self._ejected

    def due_probes(self, now: float) -> list[str]:
        """Return the ejected replicas to probe now.

        Each is due again after its delay, even if the result of this probe is never noted.
        """
        due = []
        for name in self._ejected:
            health = self._replicas[name]
            if health.probe_at <= now:
                health.probe_at = now + health.probe_delay
                due.append(name)
        return sorted(due)

    def note_probe(self, name: str, ok: bool, now: float) -> None:
        """Readmit the replica if the probe succeeded; otherwise double the delay."""
        health = self._health(name)
        if not health.is_ejected:
            return
        if not ok:
            health.probe_delay = min(2 * health.probe_delay, PROBE_LONGEST_SECONDS)
            health.probe_at = now + health.probe_delay
            return
        health.is_ejected = False
        health.is_dead = False
        health.readmitted_at = now
        health.reset()
        self._ejected.discard(name)

    def _health(self, name: str) -> _Health:
        health = self._replicas.get(name)
        if health is None:
            health = self._replicas[name] = _Health()
        return health

    def _is_outlier(self, name: str, health: _Health, now: float) -> bool:
        if health.failures_in_a_row >= FAILURES_IN_A_ROW:
            return True
        if health.errors_in_a_row >= ERRORS_IN_A_ROW:
            return True
        if (
            health.errors < ERROR_LEAST
            or health.errors <= ERROR_SHARE * health.requests
        ):
            return False
        errors = 0.0
        requests = 0.0
        for other, its in self._replicas.items():
            if other != name:
                its.fade(now)
                errors += its.errors
                requests += its.requests
        return health.errors * requests > ERROR_RATIO * errors * health.requests

    def _eject(self, name: str, health: _Health, now: float) -> None:
        if health.is_ejected:
            return
        readmitted_at = health.readmitted_at
        if readmitted_at is None or now - readmitted_at >= STABLE_SECONDS:
            health.probe_delay = PROBE_FIRST_SECONDS
        else:
            health.probe_delay = min(2 * health.probe_delay, PROBE_LONGEST_SECONDS)
        health.is_ejected = True
        health.probe_at = now + health.probe_delay
        self._ejected.add(name)
