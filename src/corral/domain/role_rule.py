"""Groups of replicas of a service that compute different parts of its requests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from corral.domain.job import JobSpec
from corral.domain.serving_roles import APART, ServingRole


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRule:
    """Group of the replicas of one role, as a spec writes it.

    Args:
        min_replicas: Fewest replicas of this role.
        max_replicas: Most of them.
        replica: What each of them runs.
        has_own_command: Whether the document has a command for this role, which an
            engine would have filled in otherwise.
    """

    role: ServingRole
    min_replicas: int
    max_replicas: int
    replica: JobSpec
    has_own_command: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas:
            raise ValueError(
                f"the replicas of role {self.role.value} must be at least 0, the "
                f"minimum first: {self.min_replicas}..{self.max_replicas}"
            )

    @property
    def replicas_text(self) -> str:
        """Return the range of replicas as a spec writes it. For example: 1..8"""
        return range_text(self.min_replicas, self.max_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillGroup:
    """State of the prefill replicas of a service. Times are wall-clock seconds since
    1970.

    Args:
        wanted: Replicas that the present demand needs.
        reason: Why.
        fruitless: Replicas of the current revision in a row that have ended before they
            had been ready for STEADY_SECONDS.
        retry_at: When the next one may be made after such an end.
        last_end: How the last such replica has ended.
        gave_way_at: When a replica was last drained so that one of the new revision
            gets its room; None: it was not necessary in this replacement.
    """

    wanted: int = 0
    reason: str = ""
    fruitless: int = 0
    retry_at: float | None = None
    last_end: str = ""
    gave_way_at: float | None = None

    @property
    def without_failures(self) -> "PrefillGroup":
        """Return the group without its failed starts."""
        return replace(self, fruitless=0, retry_at=None, last_end="")


def check_roles(roles: Sequence[RoleRule], low: int, high: int) -> None:
    """Check the groups of a spec, whose decode replicas have this range.

    Raises: ValueError.
    """
    if tuple(rule.role for rule in roles) != APART:
        raise ValueError(f"a service has a group of each role, or none: {roles}")
    decode = roles[-1]
    if (decode.min_replicas, decode.max_replicas) != (low, high):
        raise ValueError(
            f"the decode replicas must be those of the service, {low}..{high}: "
            f"{decode.replicas_text}"
        )


def with_range(
    roles: Sequence[RoleRule], role: ServingRole, low: int, high: int
) -> tuple[RoleRule, ...]:
    """Return the groups with another range of replicas of one role."""
    return tuple(
        replace(rule, min_replicas=low, max_replicas=high)
        if rule.role is role
        else rule
        for rule in roles
    )


def with_ranges_of(
    roles: Sequence[RoleRule], others: Sequence[RoleRule]
) -> tuple[RoleRule, ...]:
    """Return the groups with the ranges of other groups of the same roles."""
    return tuple(
        replace(rule, min_replicas=other.min_replicas, max_replicas=other.max_replicas)
        for rule, other in zip(roles, others, strict=True)
    )


def replica_noun(role: ServingRole) -> str:
    """Return what a replica of this role is called. For example: prefill replica"""
    return f"{role.value} replica".strip()


def range_text(low: int, high: int) -> str:
    """Return a range of replicas as a spec writes it. For example: 1..8, or 2"""
    return str(low) if low == high else f"{low}..{high}"


def roles_text(roles: Sequence[RoleRule]) -> str:
    """Return the ranges of all groups. For example: prefill 1..4, decode 2..8"""
    return ", ".join(f"{rule.role.value} {rule.replicas_text}" for rule in roles)
