"""Counts of ended and failed attempts on a node, by user. From them the head computes
whether the node is to blame for failures."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from corral.domain.ids import UserName

# then every count is halved: what is old counts less
HALF_SECONDS: Final = 14 * 86400.0
MOST_USERS: Final = 64  # of a node; those with the fewest tries go first


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    """Ended attempts of one user on a node. `tries` counts the attempts that ended
    there by themselves. `failures` counts those of them that began to fail there
    without a known fault of the cluster, at most one per job."""

    user: UserName
    tries: int
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """Counts of the attempts that have ended and failed on one node. `since` is when
    the counts were last halved, by the head's wall clock."""

    since: float = 0.0
    users: tuple[UserRecord, ...] = ()

    def after(self, user: UserName, *, failed: bool, now: float) -> "NodeRecord":
        """Return the record after one more ended attempt. `failed` counts it as
        failure."""
        users = self.users
        if now - self.since >= HALF_SECONDS:
            users = _halve_counts(users) if self.since else users
            window_start = now
        else:
            window_start = self.since
        user_record = next((record for record in users if record.user == user), None)
        tried = UserRecord(
            user=user,
            tries=(user_record.tries if user_record else 0) + 1,
            failures=(user_record.failures if user_record else 0) + failed,
        )
        other_records = sorted(
            (record for record in users if record.user != user),
            key=lambda one: -one.tries,
        )
        return NodeRecord(
            since=window_start, users=(tried, *other_records[: MOST_USERS - 1])
        )

    @property
    def failures(self) -> int:
        return sum(user.failures for user in self.users)


def _halve_counts(users: Iterable[UserRecord]) -> tuple[UserRecord, ...]:
    halves = (
        replace(user, tries=user.tries // 2, failures=user.failures // 2)
        for user in users
    )
    return tuple(halve for halve in halves if halve.tries)
