"""Quarantine of requests that replicas die of."""

from collections.abc import Collection
from math import inf
from typing import Final

DEATHS: Final = 2  # of different replicas with the request in flight
DEATHS_AMBIGUOUS: Final = 4  # when several requests were in flight at each of them
WINDOW_SECONDS: Final = 600.0
SAME_DEATH_SECONDS: Final = 5.0  # in which all requests of a dead replica are cut
QUARANTINE_SECONDS: Final = 3600.0
MOST_SUSPECTS: Final = 100_000


class Quarantine:
    """Fingerprints of requests that are suspected of ending replicas.

    A request is quarantined when two different replicas died with it in flight. If several
    requests share the same deaths, any of them may be the cause, or none: they all wait
    for more deaths. A gateway that sends suspects to different replicas needs fewer. The
    deaths of a request that is quarantined are explained, and count for no other one.
    """

    __slots__ = ("_deaths", "_explained", "_until")

    def __init__(self) -> None:
        self._deaths: dict[str, dict[str, float]] = {}  # fingerprint -> replica -> time
        self._explained: dict[str, float] = {}  # replica -> time
        self._until: dict[str, float] = {}

    def note_death(
        self, fingerprints: Collection[str], replica: str, now: float
    ) -> list[str]:
        """Record that a replica died with these requests in flight. Further requests of
        the same death may follow within SAME_DEATH_SECONDS.

        Returns: the fingerprints that are quarantined because of it.
        """
        self._expire(now)
        if now - self._explained.get(replica, -inf) <= SAME_DEATH_SECONDS:
            return []
        for fingerprint in dict.fromkeys(fingerprints):
            deaths = self._deaths.pop(fingerprint, {})
            deaths = {
                name: moment
                for name, moment in deaths.items()
                if now - moment <= WINDOW_SECONDS
            }
            deaths[replica] = now
            self._deaths[fingerprint] = deaths  # the newest last
        while len(self._deaths) > MOST_SUSPECTS:
            del self._deaths[next(iter(self._deaths))]
        counts = {
            fingerprint: len(deaths)
            for fingerprint, deaths in self._deaths.items()
            if now - deaths.get(replica, -inf) <= SAME_DEATH_SECONDS
        }
        most = max(counts.values(), default=0)
        candidates = [name for name, count in counts.items() if count == most]
        needed = DEATHS if len(candidates) == 1 else DEATHS_AMBIGUOUS
        if most < needed:
            return []
        for fingerprint in candidates:
            self._until[fingerprint] = now + QUARANTINE_SECONDS
            for name in self._deaths.pop(fingerprint, {}):
                self._explain(name, now)
        return candidates

    def _explain(self, replica: str, now: float) -> None:
        """Let the death of a replica count for no other request."""
        self._explained.pop(replica, None)
        self._explained[replica] = now  # the newest last
        for deaths in self._deaths.values():
            deaths.pop(replica, None)
        self._deaths = {name: deaths for name, deaths in self._deaths.items() if deaths}

    def note_success(self, fingerprint: str) -> None:
        """Clear a request of suspicion because a replica answered it."""
        if self._deaths:
            self._deaths.pop(fingerprint, None)

    def is_suspect(self, fingerprint: str, now: float) -> bool:
        """Return whether a replica died with the request in flight a short time ago."""
        deaths = self._deaths.get(fingerprint)
        return deaths is not None and now - max(deaths.values()) <= WINDOW_SECONDS

    def is_quarantined(self, fingerprint: str, now: float) -> bool:
        """Return whether the request must not be sent to any replica."""
        return now < self._until.get(fingerprint, now)

    def lift(self, fingerprint: str) -> bool:
        """End the quarantine of a request. Return whether it was quarantined."""
        self._deaths.pop(fingerprint, None)
        return self._until.pop(fingerprint, None) is not None

    def _expire(self, now: float) -> None:
        for fingerprint in [name for name, end in self._until.items() if end <= now]:
            del self._until[fingerprint]
        while self._explained:
            replica = next(iter(self._explained))
            if now - self._explained[replica] <= SAME_DEATH_SECONDS:
                break
            del self._explained[replica]
        while self._deaths:
            oldest = next(iter(self._deaths))
            if now - max(self._deaths[oldest].values()) <= WINDOW_SECONDS:
                break
            del self._deaths[oldest]
