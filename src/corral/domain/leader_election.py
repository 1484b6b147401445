"""Leader election among several heads.

Only the term decides which head writes (design, section 5). A waiting head uses its own
clock: it takes over once the leader's heartbeat counter has not risen for a while. So
clocks of two machines are never compared, and a wrong guess costs a change of leaders,
never a write.
"""

from dataclasses import dataclass, replace
from typing import Final

# with a look, a lead and the load of 10,000 jobs: under 10 s
SILENT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Leader as recorded in the store. `beats` rises while the leader lives. `vacant`:
    the leader has stepped down, or there has been none yet."""

    term: int
    name: str = ""
    url: str = ""
    beats: int = 0
    vacant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSeen:
    """One of several heads, leading or on standby. `beats` rises while the head lives."""

    name: str
    url: str
    beats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNow:
    """One of several heads as the leader sees it. `silent_seconds` is the time since
    its last sign of life."""

    name: str
    url: str
    leads: bool
    silent_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Last state of the leader that a standby head has seen in the store, and since
    when it has not changed. `me` is the standby's name."""

    me: str
    leader: Leader
    since: float

    def look(self, found: Leader, now: float) -> "Watch":
        return self if found == self.leader else replace(self, leader=found, since=now)

    def blind(self, now: float) -> "Watch":
        """Return the watch with the leader's silence counted from `now`, because the
        store could not be read."""
        return replace(self, since=now)

    def may_lead(self, now: float) -> bool:
        """Return whether this head may become the leader: there is no leader, the
        leader has been silent for too long, or the leader has this head's name. In the
        last case, it is a dead predecessor of this head, because two heads cannot have
        one name."""
        is_leader = self.leader.name == self.me
        return self.leader.vacant or is_leader or now - self.since >= SILENT_SECONDS
