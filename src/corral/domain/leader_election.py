"""Leader election among several heads.

Only the term decides who writes (design, section 5); a head that waits goes by its own
clock: it takes over once the leader's beats have stood still for a while. So no two
clocks are compared, and a wrong guess costs a change of leaders, never a write.
"""

from dataclasses import dataclass, replace
from typing import Final

# with a look, a lead and the load of 10,000 jobs: under 10 s
SILENT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Leader in the store. `beats` rises while it lives; `vacant`: it has stepped down,
    or there was none yet."""

    term: int
    name: str = ""
    url: str = ""
    beats: int = 0
    vacant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSeen:
    """One of several heads, whether it leads or stands by. `beats` rise while it
    lives."""

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
    """Last observation of a waiting head, and since when it has not changed."""

    me: str
    leader: Leader
    since: float

    def look(self, found: Leader, now: float) -> "Watch":
        return self if found == self.leader else replace(self, leader=found, since=now)

    def blind(self, now: float) -> "Watch":
        """The store could not be asked: a leader's silence is not counted meanwhile."""
        return replace(self, since=now)

    def may_lead(self, now: float) -> bool:
        """A leader of one's own name is one's own dead predecessor: two cannot have one
        name."""
        is_leader = self.leader.name == self.me
        return self.leader.vacant or is_leader or now - self.since >= SILENT_SECONDS
