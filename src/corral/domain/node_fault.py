"""Faults of a node over time, derived from its signals, and the repair of faults."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.ids import AttemptNumber, JobId, UserName
from corral.domain.node_signal import SignalKind

BY_HEALTH: Final = "health"  # who has cordoned a node that no person did


class Remedy(StrEnum):
    """Action that repairs a fault; the mildest comes first."""

    IGNORE = "ignore"
    RESTART_APP = "restart-app"
    CORDON = "cordon"  # a person looks
    DRAIN = "drain"
    RESET = "reset"  # of the GPU
    REBOOT = "reboot"
    DEEP_TEST = "deep-test"
    RMA = "rma"

    @property
    def rank(self) -> int:
        return _REMEDIES.index(self)


class Restriction(StrEnum):
    """Degree to which a fault keeps a node from work, from the mildest to the
    strictest."""

    OPEN = "open"
    AVOID = "avoid"  # it is taken last
    CORDON = "cordon"
    DRAIN = "drain"

    @property
    def rank(self) -> int:
        return _RESTRICTIONS.index(self)

    @property
    def closes(self) -> bool:
        return self in (Restriction.CORDON, Restriction.DRAIN)


_RESTRICTIONS: Final = tuple(Restriction)
_REMEDIES: Final = tuple(Remedy)
Unit = int | str | None  # a GPU, by its index or by its own name; None: the whole node
ConditionKey = tuple[SignalKind, int | None, Unit, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """One fault of a node, kept from its first signal until some days after its repair.
    All moments are the head's wall clock.

    `times` are the moments of its signals in the last hour. `outbreaks` are the moments
    of new outbreaks in the last days. `users` are users whose jobs were affected by the
    fault, each with the last time. Until `settles_at`, another code may change the
    meaning of the fault. `struck` is the last signal for which the jobs on the device
    were handled. `attempts` are the attempts on the device at the last signal.
    `noticed_at` is the time of that signal by the node's own clock. `recovery` is the
    remedy named by the driver. `excused`: a person allows the node to work in spite of
    the fault. `uuid` is that of the GPU, if its index is not permanent; then `gpu` is
    the index at the last signal. `confirmed` False: only the kernel's log reports the
    fault, which users can influence. Such a fault ends no job and closes no node.
    """

    kind: SignalKind
    code: int | None
    gpu: int | None
    device: str
    text: str
    since: float
    last: float
    count: int = 1
    times: tuple[float, ...] = ()
    outbreaks: tuple[float, ...] = ()
    users: tuple[tuple[UserName, float], ...] = ()
    attempts: tuple[tuple[JobId, AttemptNumber], ...] = ()
    noticed_at: float = 0.0
    recovery: str = ""
    settles_at: float | None = None
    struck: float = 0.0
    mended_at: float | None = None
    excused: bool = False
    remedy: Remedy = Remedy.IGNORE
    restriction: Restriction = Restriction.OPEN
    uuid: str = ""
    confirmed: bool = True

    @property
    def key(self) -> ConditionKey:
        return (self.kind, self.code, self.unit, self.device)

    @property
    def unit(self) -> Unit:
        return self.uuid or self.gpu

    @property
    def is_live(self) -> bool:
        return self.mended_at is None

    @property
    def active_restriction(self) -> Restriction:
        """Return how far the fault keeps its node from work; OPEN once repaired or
        excused."""
        return (
            self.restriction if self.is_live and not self.excused else Restriction.OPEN
        )

    @property
    def says(self) -> str:
        """Return a text for people. For example: XID 79 on GPU 3; remedy: reboot."""
        times = f", {self.count} times" if self.count > 1 else ""
        unsure = "" if self.confirmed else "; the GPU's driver does not confirm it"
        return f"{self.text}{times}{unsure}; remedy: {self.remedy}"

    @property
    def where(self) -> str:
        """Return the affected device. For example: GPU 3, or GPU-5f3a81c2, or mlx5_0,
        or "" for the whole node."""
        return self.uuid or (f"GPU {self.gpu}" if self.gpu is not None else self.device)


def strictest_restriction(conditions: Iterable[NodeCondition]) -> Restriction:
    """Return how far all faults together keep the node from work."""
    return max(
        (condition.active_restriction for condition in conditions),
        key=lambda restriction: restriction.rank,
        default=Restriction.OPEN,
    )


def worst(conditions: Iterable[NodeCondition]) -> NodeCondition | None:
    """Return the fault that restricts its node most. Among equals, return the one with
    the most thorough remedy. None if no fault needs repair."""
    living = [
        condition
        for condition in conditions
        if condition.is_live and condition.remedy != Remedy.IGNORE
    ]
    return max(
        living,
        key=lambda one: (one.active_restriction.rank, one.remedy.rank),
        default=None,
    )
